"""What workload owners write in YAML is plain data, whatever a loader of YAML would make of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.plain import plain_data
from criproxy.simulate.hosts import machine

MAIN = Container(key="c", pod="s", name="c", namespace="shop", pod_name="web")
_TEXT = st.text(st.characters(categories=["L", "N", "P", "S"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18) + 1, 10**18 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param("a: [b, 1, -2, true, No, null, ~]", {"a": ["b", 1, -2, True, False, None, None]}, id="plain"),
        pytest.param("a: ['1', \"true\", !!str 1]", {"a": ["1", "true", "1"]}, id="quoted"),
        pytest.param("2020-01-01: 2020-01-01", {"2020-01-01": "2020-01-01"}, id="date"),
        pytest.param("1: on\nyes: b", {"1": True, "yes": "b"}, id="keys-are-texts"),
        pytest.param("[0x10, 010, 1_000, 1:30, 1.10, 1e3, .inf]",
                     ["0x10", "010", "1_000", "1:30", "1.10", "1e3", ".inf"], id="numbers-of-other-kinds"),
        pytest.param("9" * 19, "9" * 19, id="too-long-a-number"),
        pytest.param("a: b\na: c", {"a": "c"}, id="twice"),
    ],
)  # fmt: skip
def test_plain_data(text: str, data: object) -> None:
    """Texts, truth, whole numbers of up to 18 digits, lists, maps of texts."""
    assert plain_data(text) == data


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a: [", "it is not YAML: .* in line 2, column", id="broken"),
        pytest.param("a: &x [1]\nb: *x", "aliases", id="alias"),
        pytest.param("[" * 5000, "nested deeper than 16", id="deep"),
        pytest.param("!!binary aGk=", "tags", id="binary"),
        pytest.param("!!set {a}", "tags", id="set"),
        pytest.param("? [a]\n: b", "keys of its maps must be texts", id="list-as-key"),
        pytest.param("a: 1\n---\nb: 2", "several documents", id="documents"),
        pytest.param("[" + "x," * 5000 + "]", "more than 1024 parts", id="many"),
        pytest.param("\x00", "it is not YAML", id="nul"),
        pytest.param("\ud800", "it is not YAML", id="surrogate"),
    ],
)
def test_what_is_no_plain_data_is_told(text: str, says: str) -> None:
    """In one sentence of ours."""
    with pytest.raises(ValueError, match=says):
        plain_data(text)


@given(PLAIN)
def test_json_is_read_as_it_is(data: object) -> None:
    """Which is YAML too."""
    assert plain_data(json.dumps(data, ensure_ascii=False)) == data


@given(st.text(st.sampled_from("ac:-[]{}?!&*#|>'\"%@`, \n\t0x.e+~<=2020-01")))
def test_whatever_is_written_is_data_or_refused(text: str) -> None:
    """And data can be written as JSON again."""
    try:
        json.dumps(plain_data(text))
    except ValueError as error:
        assert str(error).startswith(("it ", "the keys "))  # noqa: PT017 - either is right


def test_whatever_a_reader_raises_refuses_the_container() -> None:
    """In our words: a mistake of ours at one pod's text is no failure of the policy."""

    def broken(text: str) -> str:
        raise TypeError(f"Object of type {text}")

    node = Node(machine(), pods={"s": Pod(key="s", annotations={"memory-type.criproxy.io": "dram"})})
    with pytest.raises(BadAnnotation, match=r"is invalid: criproxy cannot read it; write it plainly$"):
        Wishes(node, MAIN).read("memory-type", broken)
