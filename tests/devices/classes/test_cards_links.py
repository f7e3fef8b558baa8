"""How far cards are from each other, in the words of nvidia-smi; their paths and numbers, however a pod writes them."""

import pytest

from criproxy.devices.classes.builtin import ASCEND, NVIDIA
from criproxy.devices.classes.cards import Card, Distance, Link, NvLinks, Peers, Stock, distance, links, number_in
from criproxy.devices.classes.device_class import DeviceClass, clean_path


def card(path: str, node: int = 0, id: str = "") -> Card:
    """A card at the end of *path*."""
    *bridges, address = path.split("/")
    return Card(0, id=id, pci=address, bridges=tuple(bridges), numa_node=node)


SWITCH = "pci0000:3a/3a:00.0/3b:00.0"
"""A root port, and the port of a switch that is nearest to it."""


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(card(f"{SWITCH}/3c:00.0/3d:00.0"), card(f"{SWITCH}/3c:01.0/3e:00.0"), Distance.PIX, id="switch"),
        pytest.param(card(f"{SWITCH}/3c:00.0/3d:00.0"), card(f"{SWITCH}/3c:00.0/3d:00.1"), Distance.PIX, id="board"),
        pytest.param(
            card(f"{SWITCH}/3c:00.0/3d:00.0"),
            card(f"{SWITCH}/3c:01.0/3e:00.0/3f:00.0/40:00.0"),
            Distance.PXB,
            id="switch-below-a-switch",
        ),
        pytest.param(card("pci0000:3a/3a:00.0/3b:00.0"), card("pci0000:3a/3a:02.0/3c:00.0"), Distance.PHB, id="ports"),
        pytest.param(card("pci0000:3a/3b:00.0"), card("pci0000:5d/5e:00.0"), Distance.NODE, id="bridges-of-a-node"),
        pytest.param(card("pci0000:3a/3b:00.0", 0), card("pci0000:af/b0:00.0", 1), Distance.SYS, id="two-nodes"),
        pytest.param(card("pci0000:3a/3b:00.0", -1), card("pci0000:af/b0:00.0", -1), Distance.SYS, id="no-nodes"),
        pytest.param(card("", -1), card("", -1), Distance.SYS, id="nothing-known"),
    ],
)
def test_what_lies_between_two_cards(one: Card, other: Card, expected: Distance) -> None:
    """It is the same from both ends."""
    assert distance(one, other) is distance(other, one) is expected


def test_the_nearest_comes_first() -> None:
    """Distances can be compared."""
    assert sorted(Distance) == [Distance.PIX, Distance.PXB, Distance.PHB, Distance.NODE, Distance.SYS]


def test_the_driver_knows_better() -> None:
    """NVLinks go before what is known of the bus, be they straight or by switches; other cards keep the bus."""
    cards = [card(f"pci{number}/{number}", number // 2, f"GPU-{number}") for number in range(4)]
    told = {
        "GPU-0": Peers({"GPU-1": Distance.PXB}, NvLinks({"1": 4, "2": 2})),
        "GPU-1": Peers({"GPU-0": Distance.PXB}, NvLinks({"0": 4})),
        "GPU-2": Peers({}, NvLinks({"0": 2}, to_switches=12)),
        "GPU-3": Peers({}, NvLinks(to_switches=18)),
    }

    found = list(links(cards, told))

    assert [(link.first, link.second, link.name) for link in found] == [
        (0, 1, "NV4"),
        (0, 2, "NV2"),
        (0, 3, "SYS"),
        (1, 2, "SYS"),
        (1, 3, "SYS"),
        (2, 3, "NV12"),
    ]
    assert found[0].distance is Distance.PXB
    assert found[5].distance is Distance.NODE


def test_cards_without_ids_are_told_of_by_the_bus_only() -> None:
    """Nothing that is told of an empty id is theirs."""
    told = {"": Peers({"": Distance.PIX}, NvLinks(to_switches=4))}

    assert list(links([card("pci0/1"), card("pci1/2")], told)) == [Link(0, 1, Distance.NODE)]
    assert list(links([])) == []


def test_each_way_to_write_a_path_is_the_same_path() -> None:
    """The runtime mounts all of them at one place."""
    ways = "/etc/x //etc/x ///etc/x //etc//x/ etc/x ./etc/x ../etc/x /../etc/x /etc/../etc/./x".split()

    assert {clean_path(way) for way in ways} == {"/etc/x"}


def test_the_root_is_a_path() -> None:
    """It has nothing below its slash."""
    assert [clean_path(path) for path in ("", "/", "//", ".")] == ["/"] * 4


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/dev/nvidia7", 7),
        ("/dev/nvidia123456789", 123_456_789),
        ("/dev/nvidia" + "9" * 10, None),
        ("/dev/nvidia" + "9" * 5000, None),
        ("/dev/nvidia", None),
    ],
)
def test_a_path_with_too_many_digits_is_no_card(path: str, number: int | None) -> None:
    """There is no such card."""
    assert NVIDIA.card_number(path) == number
    assert NVIDIA.is_card_node(path) is (number is not None)


@pytest.mark.parametrize("kind", [NVIDIA, ASCEND], ids=["uuid", "index"])
@pytest.mark.parametrize("name", ["9" * 5000, "Ascend910-" + "9" * 5000, "x" + "9" * 5000, "٣"])
def test_a_name_with_too_many_digits_is_no_card(kind: DeviceClass, name: str) -> None:
    """Be it of a variable, an allocation or a CDI device."""
    assert Stock().card(kind, name) is None
    assert number_in(name) is None
