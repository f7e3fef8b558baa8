"""The labels of cards of any vendor, and what a feature file says of them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.labels import MAX_LABEL, feature_file, is_legal_key, legal_value, resource_labels
from criproxy.devices.classes.offers import Offered, Offers, replica_id

NPU = "aliyun.com/npu"


def cards(count: int, replicas: int = 0) -> list[Offered]:
    """Return what is offered: cards, or so many replicas of each."""
    if not replicas:
        return [Offered(id=f"npu{number}", index=str(number)) for number in range(count)]
    return [
        Offered(id=replica_id(f"npu{number}", part), index=str(number), replicas=replicas)
        for number in range(count)
        for part in range(replicas)
    ]


SHARED = f"{NPU}.shared"
WHOLE = {"replicas": "1", "sharing-strategy": "none"}
IN_FOUR = {"replicas": "4", "sharing-strategy": "time-slicing"}


def offers(**resources: list[Offered]) -> Offers:
    """Return what is offered as the resource, or as the one of its shared cards."""
    names = {"npu": NPU, "shared": SHARED}
    return {names[name]: {each.id: each for each in offered} for name, offered in resources.items()}


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param(offers(npu=cards(2)), {"count": "2", **WHOLE}, id="whole"),
        pytest.param(offers(npu=cards(2, 4)), {"count": "2", **IN_FOUR}, id="shared"),
        pytest.param(offers(shared=cards(2, 4)), {"count": "2", **IN_FOUR}, id="renamed"),
        pytest.param(offers(npu=[]), {"count": "0", **WHOLE}, id="no-cards"),
        pytest.param(
            offers(npu=cards(3)[1:], shared=cards(1, 4)), {"count": "3", **IN_FOUR}, id="one-of-three-renamed"
        ),
        pytest.param(offers(npu=[*cards(1, 4), *cards(3)[1:]]), {"count": "3", **IN_FOUR}, id="one-of-three-shared"),
    ],
)
def test_labels_of_a_resource(offered: Offers, expected: dict[str, str]) -> None:
    """They begin with the resource before it was renamed, and say how many cards there are, not how many ids."""
    assert resource_labels(offered) == {f"{NPU}.{name}": value for name, value in expected.items()}


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
