"""NUMA nodes of every sort: gaps, no CPUs, no memory, offline CPUs, odd distances."""

from collections import Counter
from pathlib import Path

import pytest

from criproxy.devices.classes.cards import Card, links
from criproxy.host.cards import DriverFiles
from criproxy.host.files import entries, read_text
from criproxy.host.numa import read_distances, read_nodes
from criproxy.host.places import PCI
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.machine.topology import MemoryKind, NumaNode
from criproxy.simulate.hosts import unpack
from tests.host.tree import plant

NODE = "sys/devices/system/node"
GIB = 1 << 30


def node(number: int, cpus: str, memory_gib: int = 1, **more: str) -> dict[str, str]:
    """Return the files of one node; *more* are further ones by name."""
    files = {"cpulist": f"{cpus}\n", "meminfo": f"Node {number} MemTotal: {memory_gib << 20} kB\n", **more}
    return {f"{NODE}/node{number}/{name}": content for name, content in files.items()}


def bandwidth(number: int, value: int) -> dict[str, str]:
    """Return what the firmware says of a node's bandwidth."""
    return {f"{NODE}/node{number}/access0/initiators/read_bandwidth": f"{value}\n"}


def normal(nodes: str) -> dict[str, str]:
    """Return the file with the nodes whose memory was not plugged in."""
    return {f"{NODE}/has_normal_memory": f"{nodes}\n"}


def test_gaps_and_offline_cpus(tmp_path: Path) -> None:
    """Ids may have gaps, a list may hold offline CPUs, online CPUs may be in no node, folders may be offline nodes."""
    files = node(0, "0-3") | node(4, "8-11") | node(255, "") | node(7, "12") | {f"{NODE}/online": "0,4,255,300\n"}
    found = read_nodes(plant(tmp_path, files), parse_cpuset("1-2,8-11,20"))

    assert [(each.id, format_cpuset(each.cpus)) for each in found] == [(0, "1-2"), (4, "8-11"), (255, "")]
    assert [each.memory_only for each in found] == [False, False, True]


def test_nothing_but_a_mask(tmp_path: Path) -> None:
    """Without `online`, `cpulist` and `meminfo` there are the folder and the mask."""
    files = {f"{NODE}/node2/cpumap": "00000000,0000000f\n", f"{NODE}/has_cpu": "\0\0\n"}

    (found,) = read_nodes(plant(tmp_path, files), parse_cpuset("0-3"))
    assert found == NumaNode(2, parse_cpuset("0-3"), 0, normal_memory=False)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        pytest.param(bandwidth(0, 200) | bandwidth(1, 900), MemoryKind.HBM, id="more-bandwidth"),
        pytest.param(bandwidth(0, 200) | bandwidth(1, 30), MemoryKind.PMEM, id="less-bandwidth"),
        pytest.param(bandwidth(0, 200) | bandwidth(1, 900) | normal("0"), MemoryKind.HBM, id="bandwidth-beats-movable"),
        pytest.param(
            {
                "sys/devices/virtual/memory_tiering/memory_tier4/nodelist": "0\n",
                "sys/devices/virtual/memory_tiering/memory_tier22/nodelist": "1\n",
            },
            MemoryKind.PMEM,
            id="slower-tier",
        ),
        pytest.param(
            {
                "sys/devices/virtual/memory_tiering/memory_tier4/nodelist": "0\n",
                "sys/devices/virtual/memory_tiering/memory_tier2/nodelist": "1\n",
                "sys/devices/virtual/memory_tiering/uevent": "",
            },
            MemoryKind.HBM,
            id="faster-tier",
        ),
        pytest.param(normal("0"), MemoryKind.PMEM, id="movable"),
        pytest.param(normal("0-1"), MemoryKind.PMEM, id="normal-and-larger"),
        pytest.param(normal("0-1") | node(0, "0-3", 64), MemoryKind.HBM, id="normal-and-smaller"),
        pytest.param({}, MemoryKind.HBM, id="older-than-pmem"),
    ],
)
def test_memory_without_cpus(tmp_path: Path, files: dict[str, str], kind: MemoryKind) -> None:
    """The firmware's table decides, then the kernel's tiers, then whether it was plugged in, then its size."""
    dram, other = read_nodes(plant(tmp_path, node(0, "0-3", 4) | node(1, "", 16) | files), parse_cpuset("0-3"))

    assert (dram.kind, other.kind) == (MemoryKind.DRAM, kind)


MOVABLE = normal("0-1")
DAX = {"sys/bus/dax/devices/dax0.0/target_node": "2\n"}


def distances(to_other: int, lone: int) -> dict[str, str]:
    """Rows of two nodes with CPUs, *to_other* apart, and one without, *lone* away from the nearer one."""
    rows = [f"10 {to_other} {lone}", f"{to_other} 10 {lone + 40}", f"{lone} {lone + 40} 10"]
    return {f"{NODE}/node{number}/distance": f"{row}\n" for number, row in enumerate(rows)}


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        pytest.param(MOVABLE | {f"{NODE}/has_generic_initiator": "2\n"}, MemoryKind.DEVICE, id="generic-initiator"),
        pytest.param(
            {"proc/driver/nvidia/gpus/0009:01:00.0/numa_status": "Node:            2\nStatus:  online\n"},
            MemoryKind.DEVICE,
            id="nvidia-says-so",
        ),
        pytest.param(
            {"proc/driver/nvidia/gpus/0009:01:00.0/numa_status": "Node:            -1\nStatus:  disabled\n"},
            MemoryKind.HBM,
            id="nvidia-has-none",
        ),
        pytest.param(MOVABLE | distances(40, 80), MemoryKind.DEVICE, id="farther-than-the-other-socket"),
        pytest.param(MOVABLE | distances(40, 80) | DAX, MemoryKind.PMEM, id="far-cxl-as-dax"),
        pytest.param(MOVABLE | distances(21, 17), MemoryKind.PMEM, id="nearer-than-the-other-socket"),
        pytest.param(MOVABLE, MemoryKind.PMEM, id="no-distances"),
        pytest.param(distances(40, 80), MemoryKind.HBM, id="not-known-to-be-movable"),
    ],
)
def test_memory_of_an_accelerator(tmp_path: Path, files: dict[str, str], kind: MemoryKind) -> None:
    """It is told by the kernel or the driver, or by being plugged in farther away than any memory with CPUs."""
    made = node(0, "0-3", 4) | node(1, "4-7", 4) | node(2, "", 16) | files
    *_, lone = read_nodes(plant(tmp_path, made), parse_cpuset("0-7"))

    assert lone.kind is kind


@pytest.mark.parametrize(
    ("rows", "distances"),
    [
        pytest.param(["10 21\n", "21 10\n"], ((10, 21), (21, 10)), id="plain"),
        pytest.param(["10 21 30\n", "21 10 30\n"], (), id="longer-than-the-nodes"),
        pytest.param(["10 21\n", ""], (), id="row-missing"),
        pytest.param(["ten 21\n", "21 10\n"], (), id="no-numbers"),
    ],
)
def test_distances(tmp_path: Path, rows: list[str], distances: tuple[tuple[int, ...], ...]) -> None:
    """They are those of the nodes that are online, or none."""
    nodes = (NumaNode(0, frozenset(), 0), NumaNode(8, frozenset(), 0))
    files = {f"{NODE}/node{number}/distance": row for number, row in zip((0, 8), rows, strict=True)}

    assert read_distances(plant(tmp_path, files), nodes) == distances
    assert read_distances(tmp_path / "nowhere", nodes) == ()


# ---------------------------------------------------------------- distances


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
