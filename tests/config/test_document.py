"""YAML is read within bounds and without surprises."""

import json
import re
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.config.document import MAX_VALUES, parse

MIB = 1 << 20


def lines(text: str) -> list[str]:
    """The mistakes in *text*."""
    return [f"{mistake.line}:{mistake.column}: {mistake.text}" for mistake in parse(text).mistakes]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("x", "x"),
        ("3", 3),
        ("-3", -3),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'3'", "3"),
        ('"true"', "true"),
        ("''", ""),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("0:30", "0:30"),
        ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("2024-12-24", "2024-12-24"),
        (".nan", ".nan"),
        ("'010'", "010"),
        ("0-3", "0-3"),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
    ],
)
def test_values(written: str, value: object) -> None:
    """Words mean what they look like: booleans are true and false, and only plain decimal numbers are numbers."""
    document = parse(f"a: {written}\n")

    assert (document.data, document.mistakes) == ({"a": value}, [])
    assert type(document.data["a"]) is type(value)


def test_keys_are_words() -> None:
    """Keys that look like numbers or booleans stay texts."""
    assert parse("1: a\non: b\nnull: c\n1.0: d\n").data == {"1": "a", "on": "b", "null": "c", "1.0": "d"}


def test_an_alias_repeats_what_its_anchor_marks() -> None:
    """Anchors work, nested and on keys as well."""
    text = "a: &a [1, &b {c: 2}]\nd: *a\ne: *b\n&k f: *k\n"

    assert parse(text).data == {"a": [1, {"c": 2}], "d": [1, {"c": 2}], "e": {"c": 2}, "f": "f"}


def test_places() -> None:
    """Each key and value knows its line and column; unknown paths are where what is around them is."""
    document = parse("a:\n  b: [1, x]\n")

    assert document.place(("a", "b"), of_key=True) == (2, 3)
    assert document.place(("a", "b", 1), of_key=False) == (2, 10)
    assert document.place(("a", "b", "missing"), of_key=False) == (2, 6)
    assert parse("").place(("a",), of_key=True) == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: 010\n", "1:4: a number must not begin with 0", id="octal"),
        pytest.param("a: -08\n", "1:4: a number must not begin with 0", id="octal-that-is-none"),
        pytest.param("a: " + "9" * 19, f"1:4: the number {'9' * 19} is too large", id="huge-number"),
        pytest.param("a: -1e999", "1:4: the number -1e999 is too large", id="infinite-number"),
        pytest.param("a: &x [*x]\n", "1:4: nested deeper than 32 levels", id="contains-itself"),
        pytest.param("a: {b: &x 1}\nc: *y\n", "2:4: *y refers to &y, but nothing above", id="no-anchor"),
        pytest.param("[" * 100 + "]" * 100, "1:33: nested deeper than 32 levels", id="deep"),
        pytest.param("- " * 9000, "1:65: nested deeper than 32 levels", id="deep-blocks"),
        pytest.param("{a: " * 9000, "1:129: nested deeper than 32 levels", id="deep-mappings"),
        pytest.param("a: 1\nb: 2\na: 3\n", "3:1: 'a' is given twice, first in line 1", id="duplicate"),
        pytest.param("x:\n  a: {b: 1, b: 1}\n", "2:13: 'b' is given twice, first in line 2", id="nested-duplicate"),
        pytest.param("<<: {a: 1}\n", "1:1: merge keys (<<) are not supported", id="merge-key"),
        pytest.param("a: !!int x\n", "1:4: the tag '!!int' has no meaning here", id="tag"),
        pytest.param("? [a]\n: b\n", "1:3: the name of an option must be a plain word", id="list-as-key"),
        pytest.param('"": b\n', "1:1: the name of an option is missing", id="empty-key"),
        pytest.param("a: \ud800\n", "1:4: the character U+D800 is not allowed", id="surrogate"),
    ],
)
def test_what_yaml_would_let_pass(text: str, said: str) -> None:
    """What is valid YAML or nearly so, and a trap, is a mistake with its place."""
    assert any(line.startswith(said) for line in lines(text)), lines(text)


def test_a_bomb() -> None:
    """Aliases count as often as they are used: nine short lines cannot become a billion values."""
    names = "abcdefghij"
    bomb = "a: &a [1,1,1,1,1,1,1,1]\n" + "".join(
        f"{after}: &{after} [{','.join([f'*{before}'] * 8)}]\n" for before, after in pairwise(names)
    )

    assert f"more than {MAX_VALUES} values" in lines(bomb)[0]


PART = MIB // 4


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("# comment\n" * (PART // 10), id="comments"),
        pytest.param("\n" * PART, id="empty-lines"),
        pytest.param("[" * PART, id="brackets"),
        pytest.param("a: [" + "1," * (PART // 2), id="long-list"),
        pytest.param("a: " + "x " * (PART // 2), id="words"),
        pytest.param("a:\n" + " x\n" * (PART // 3), id="folded-lines"),
        pytest.param("".join(f"k{i}: 1\n" for i in range(PART // 11)), id="keys"),
        pytest.param("%a b\n" * (PART // 5), id="directives"),
    ],
)
def test_a_large_file_takes_seconds_at_most(text: str) -> None:
    """The time grows with the size only, whatever a file holds: the largest has four times this, and ten seconds."""
    begin_s = time.process_time()
    parse(text)

    assert time.process_time() - begin_s < 2.5


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_json_is_read_as_it_is(value: Any) -> None:  # noqa: ANN401 (JSON is anything)
    """JSON is YAML: data comes back as it was written, unless a key is empty or a character beyond 16 bits escaped."""
    document = parse(json.dumps(value))

    if not document.mistakes:
        assert document.data == value
    else:
        assert all(re.search("option is missing|is not a character", mistake.text) for mistake in document.mistakes)
