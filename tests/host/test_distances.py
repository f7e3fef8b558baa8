"""How far the cards of a real machine are from each other, by its copied /sys."""

from collections import Counter
from pathlib import Path

from criproxy.devices.classes.cards import Card, links
from criproxy.host.cards import DriverFiles
from criproxy.host.files import entries, read_text
from criproxy.host.places import PCI
from criproxy.simulate.hosts import unpack

VECTOR_ENGINE = "0x1bcf"


def test_eight_cards_on_two_switches(tmp_path: Path, shared_dir: Path) -> None:
    """Four vector engines of one switch are near each other; the others are below another host bridge of the node."""
    snapshot = shared_dir / "topologies/snapshots/xeon-2s2n-smt-pci.tar.xz"
    unpack(snapshot, tmp_path, lambda name: name.removeprefix("./").startswith(("sys/bus", "sys/devices/pci")))
    addresses = [
        address
        for address in entries(tmp_path / PCI)
        if read_text(tmp_path / PCI / address / "vendor") == VECTOR_ENGINE
    ]
    places = DriverFiles(timeout_s=60.0).places(tmp_path, {address: (address, ()) for address in addresses})
    cards = [
        Card(number, pci=place.pci, bridges=place.bridges, numa_node=place.numa_node)
        for number, place in enumerate(places)
    ]

    found = {(link.first, link.second): link.name for link in links(cards)}

    assert [card.pci[5:7] for card in cards] == ["1b", "1c", "1d", "1e", "3d", "3f", "40", "41"]
    assert Counter(found.values()) == {"PIX": 12, "NODE": 16}
    assert all(name == ("PIX" if first // 4 == second // 4 else "NODE") for (first, second), name in found.items())
