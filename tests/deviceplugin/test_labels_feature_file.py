"""What a feature file says, and what it does not because the API server would refuse it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.labels import MAX_LABEL, feature_file, is_legal_key, legal_value

LEGAL = re.compile("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
"""A label's value, as Kubernetes' own validation has it."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="empty"),
        pytest.param("Tesla-T4", "Tesla-T4", id="legal"),
        pytest.param("-lead_trail.", "lead_trail", id="ends"),
        pytest.param("a b=c\nd", "abcd", id="illegal"),
        pytest.param("é…", "", id="nothing-left"),
        pytest.param("x" * 64, "x" * 63, id="long"),
        pytest.param("x" * 62 + "-yz", "x" * 62, id="ends-where-it-is-cut"),
    ],
)
def test_values(text: str, expected: str) -> None:
    """A value loses what no label may hold, and only that."""
    assert legal_value(text) == expected


CAPITALS, LONGEST = "huawei.com/Ascend910.count", "nvidia.com/" + "x" * 63
NO_DOMAINS = ("gpu.count", "Nvidia.com/gpu", "nvidia..com/gpu", "# +no-label/a", "x." * 130 + "com/x")
NO_NAMES = ("nvidia.com/", "nvidia.com/a/b", "nvidia.com/gpu.", "nvidia.com/gpu\n", "nvidia.com/a=b", LONGEST + "x")


@pytest.mark.parametrize("key", ["nvidia.com/mig-1g.5gb.me.engines.decoder", CAPITALS, LONGEST, *NO_DOMAINS, *NO_NAMES])
def test_keys(key: str) -> None:
    """A key has a prefix that is a domain, and a short name."""
    assert is_legal_key(key) is (key not in (*NO_DOMAINS, *NO_NAMES))


def test_lines() -> None:
    """Each label has a line, in the order of the keys; one with an illegal key costs none of the others."""
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/cuda.driver.rev": "", "bad key": "1", "b.io/x": "-1-"}

    assert feature_file(labels) == "b.io/x=1\nnvidia.com/cuda.driver.rev=\nnvidia.com/gpu.count=2\n"
    assert feature_file({}) == ""


@given(st.dictionaries(st.text() | st.just("nvidia.com/x"), st.text(), max_size=5))
def test_any_labels_make_a_file_that_is_taken(labels: dict[str, str]) -> None:
    """Every line is a legal label, and every legal label has one."""
    lines = feature_file(labels).splitlines()

    assert len(lines) == sum(map(is_legal_key, labels))
    for line in lines:
        _, _, value = line.partition("=")
        assert LEGAL.fullmatch(value)
        assert len(value) <= MAX_LABEL


@given(st.text())
def test_a_legal_value_stays(text: str) -> None:
    """What was made legal once is not changed again."""
    assert legal_value(legal_value(text)) == legal_value(text)
