"""The labels of cards of any vendor."""

import pytest

from criproxy.deviceplugin.labels.labels import Advertised, advertised, resource_labels
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
    ("offered", "products", "expected"),
    [
        pytest.param(offers(npu=cards(2)), [], {"count": "2", **WHOLE}, id="product-unknown"),
        pytest.param(
            offers(npu=cards(2)),
            ["Ascend 910 B", "Ascend 910 B"],
            {"count": "2", **WHOLE, "product": "Ascend-910-B"},
            id="product",
        ),
        pytest.param(
            offers(npu=cards(2, 4)), ["910B"], {"count": "2", **IN_FOUR, "product": "910B-SHARED"}, id="shared"
        ),
        pytest.param(offers(shared=cards(2, 4)), ["910B"], {"count": "2", **IN_FOUR, "product": "910B"}, id="renamed"),
        pytest.param(offers(npu=[]), [], {"count": "0", **WHOLE}, id="no-cards"),
        pytest.param(
            offers(npu=cards(3)[1:], shared=cards(1, 4)),
            ["910B"],
            {"count": "3", **IN_FOUR, "product": "910B"},
            id="one-of-three-renamed",
        ),
        pytest.param(
            offers(npu=[*cards(1, 4), *cards(3)[1:]]),
            ["b", "a", " "],
            {"count": "3", **IN_FOUR, "product": "a-SHARED"},
            id="one-of-three-shared-and-two-models",
        ),
    ],
)
def test_labels_of_a_resource(offered: Offers, products: list[str], expected: dict[str, str]) -> None:
    """They begin with the resource before it was renamed, and say how many cards there are, not how many ids."""
    by_card = {f"npu{number}": product for number, product in enumerate(products)}
    (found,) = advertised(offered, by_card)

    assert resource_labels(found) == {f"{NPU}.{name}": value for name, value in expected.items()}


def test_a_new_name_of_ones_own() -> None:
    """A resource that was renamed by the configuration keeps the labels of the original."""
    offered = {"aliyun.com/part": offers(npu=cards(1, 2))[NPU], "aliyun.com/other": {}}
    found = advertised(offered, {"npu0": "x"}, originals={"aliyun.com/part": NPU})

    renamed = Advertised(resource=NPU, cards=1, products=("x",), replicas=2, strategy="time-slicing", renamed=True)
    assert found[0] == renamed
    assert [each.resource for each in found] == [NPU, "aliyun.com/other"]
