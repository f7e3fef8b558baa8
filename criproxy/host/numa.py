"""NUMA nodes: their CPUs, the size and kind of their memory, their huge pages, and the distances between them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from criproxy.host.files import entries, numbered, read_ids, read_number, read_text
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.hardware import HugePages
from criproxy.model.machine.topology import REMOTE_DISTANCE, MemoryKind, NumaNode

NODES = "sys/devices/system/node"
TIERS = "sys/devices/virtual/memory_tiering"
DAX = "sys/bus/dax/devices"
GPUS = "proc/driver/nvidia/gpus"


def read_nodes(host_root: Path, online: CpuSet) -> tuple[NumaNode, ...]:
    """Return the online NUMA nodes in order of their IDs, which may have gaps. CPUs may be in no node."""
    folder = host_root / NODES
    ids = numbered(folder, "node")
    listed = read_ids(folder / "online")
    normal = read_ids(folder / "has_normal_memory")
    nodes = [_node(folder, number, online, normal) for number in sorted(ids if listed is None else ids & listed)]
    dram = [node for node in nodes if node.cpus]
    if len(dram) == len(nodes):
        return tuple(nodes)
    of_devices = _of_devices(host_root) | _far_ones(host_root, nodes, normal)
    kinds = (MemoryKind.DEVICE if node.id in of_devices else _kind(host_root, node, dram, normal) for node in nodes)
    return tuple(node if node.cpus else replace(node, kind=kind) for node, kind in zip(nodes, kinds, strict=True))


def _node(folder: Path, number: int, online: CpuSet, normal: CpuSet | None) -> NumaNode:
    place = folder / f"node{number}"
    cpus = read_ids(place / "cpulist", masks=[place / "cpumap"]) or frozenset()
    memory_bytes = _memory_bytes(place / "meminfo")
    return NumaNode(number, cpus & online, memory_bytes, number in normal if normal else memory_bytes > 0)


def _memory_bytes(meminfo: Path) -> int:
    """Return MemTotal of ``Node 0 MemTotal: 16384 kB``; 0 if the file or the line is missing."""
    for line in (read_text(meminfo) or "").splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == "MemTotal:" and words[3].isdigit():
            return int(words[3]) * 1024
    return 0


def _of_devices(host_root: Path) -> CpuSet:
    """Return the nodes that belong to an accelerator, as far as the kernel or NVIDIA's driver says so."""
    files = (host_root / GPUS / name / "numa_status" for name in entries(host_root / GPUS))
    lines = (line.split() for file in files for line in (read_text(file) or "").splitlines())
    of_gpus = frozenset(int(line[1]) for line in lines if line[:1] == ["Node:"] and line[1:] and line[1].isdigit())
    return of_gpus | (read_ids(host_root / NODES / "has_generic_initiator") or frozenset())


def _far_ones(host_root: Path, nodes: Sequence[NumaNode], normal: CpuSet | None) -> CpuSet:
    """Return the nodes with memory that was plugged in farther from all CPUs than the memory of any other CPUs.

    Persistent memory and CXL, which may be far away, too, are plugged in by the driver of a DAX device.
    """
    if not normal or not (distances := read_distances(host_root, nodes)):
        return frozenset()
    dax = {read_number(host_root / DAX / name / "target_node") for name in entries(host_root / DAX)}
    with_cpus = [place for place, node in enumerate(nodes) if node.cpus]
    apart = (distances[one][other] for one in with_cpus for other in with_cpus)
    farthest = max((REMOTE_DISTANCE, *apart))
    return frozenset(
        node.id
        for place, node in enumerate(nodes)
        if not (node.cpus or node.normal_memory or node.id in dax)
        and min((distances[other][place] for other in with_cpus), default=0) > farthest
    )


def _kind(host_root: Path, node: NumaNode, dram: Sequence[NumaNode], normal: CpuSet | None) -> MemoryKind:
    """Return HBM or PMEM, by the best evidence available."""
    faster = _has_more_bandwidth(host_root, node, dram)
    if faster is None:
        faster = _is_in_faster_tier(host_root, node, dram)
    if faster is None and normal:
        # Memory that was plugged in (PMEM, CXL) is movable, and thus not normal. Of the rest, HBM is the smaller.
        average_bytes = sum(other.memory_bytes for other in dram) / max(len(dram), 1)
        faster = node.normal_memory and node.memory_bytes < average_bytes
    # Kernels that do not list normal memory are older than PMEM or CXL in NUMA nodes.
    return MemoryKind.PMEM if faster is False else MemoryKind.HBM


def _has_more_bandwidth(host_root: Path, node: NumaNode, dram: Iterable[NumaNode]) -> bool | None:
    """Compare by the firmware's table (HMAT), for the nearest CPUs; None if it has no values."""
    own = _bandwidth(host_root, node)
    others = [value for value in (_bandwidth(host_root, other) for other in dram) if value]
    return own > max(others) if own and others else None


def _bandwidth(host_root: Path, node: NumaNode) -> int:
    return read_number(host_root / NODES / f"node{node.id}/access0/initiators/read_bandwidth") or 0


def _is_in_faster_tier(host_root: Path, node: NumaNode, dram: Iterable[NumaNode]) -> bool | None:
    """Compare by the kernel's memory tiers, of which lower numbers are faster; None if they do not decide."""
    tier_of = {
        member: int(name.removeprefix("memory_tier"))
        for name in entries(host_root / TIERS)
        if name.removeprefix("memory_tier").isdigit()
        for member in read_ids(host_root / TIERS / name / "nodelist") or ()
    }
    others = [tier_of[other.id] for other in dram if other.id in tier_of]
    if node.id not in tier_of or not others or tier_of[node.id] == min(others):
        return None
    return tier_of[node.id] < min(others)


def read_distances(host_root: Path, nodes: Sequence[NumaNode]) -> tuple[tuple[int, ...], ...]:
    """Return the distance from each node to each; empty if a row is missing or invalid: a guess would misplace."""
    rows = [_row(host_root / NODES / f"node{node.id}/distance") for node in nodes]
    return tuple(rows) if all(len(row) == len(nodes) for row in rows) else ()


def _row(path: Path) -> tuple[int, ...]:
    words = (read_text(path) or "").split()
    return tuple(int(word) for word in words) if all(word.isdigit() for word in words) else ()


def read_huge_pages(host_root: Path, nodes: Iterable[int]) -> tuple[HugePages, ...]:
    """Return the huge pages of each size in *nodes*, as they are now; a node without these files has none."""
    return tuple(each for node in nodes for each in _huge_pages(host_root / NODES / f"node{node}/hugepages", node))


def _huge_pages(folder: Path, node: int) -> Iterator[HugePages]:
    for name in entries(folder):
        size_kib = name.removeprefix("hugepages-").removesuffix("kB")
        if size_kib.isdigit():
            total, free = (read_number(folder / name / f"{what}_hugepages") or 0 for what in ("nr", "free"))
            yield HugePages(node, int(size_kib) * 1024, total, free)
