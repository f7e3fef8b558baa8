"""The labels of cards of any vendor."""

import pytest

from criproxy.deviceplugin.labels import resource_labels
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
