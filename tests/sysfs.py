"""A made-up machine as the files of /sys that a kernel would show of it: for tests, and to try criproxy on it.

The opposite of `host`: what is written here is read there as the same value.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import MemoryKind, NumaNode, Topology

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
PODS = "sys/fs/cgroup/kubepods.slice"

Files = Iterator[tuple[str, str]]
"""Path under the host root, and content."""

BANDWIDTH_MBPS = {
    MemoryKind.DRAM: 200_000,
    MemoryKind.HBM: 800_000,
    MemoryKind.PMEM: 30_000,
    MemoryKind.DEVICE: 400_000,
}


def write_sysfs(host_root: Path, topology: Topology) -> None:
    """Write the /sys of *topology* under *host_root*, which may exist; the pods' cgroup is of version 2."""
    for name, content in files(topology):
        path = host_root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def files(topology: Topology) -> Files:
    """Every file that is needed, each once."""
    yield f"{CPUS}/online", format_cpuset(topology.online_cpus)
    yield f"{CPUS}/present", format_cpuset(topology.online_cpus | topology.offline_cpus)
    yield f"{CPUS}/isolated", format_cpuset(topology.isolated_cpus)
    yield f"{PODS}/cpuset.cpus.effective", format_cpuset(topology.cpus)
    yield f"{PODS}/cpuset.mems.effective", format_cpuset(topology.mems)
    yield from _cores(topology)
    yield from _caches(2, topology.l2_groups)
    yield from _caches(3, topology.l3_groups)
    yield from _kinds(topology)
    yield from _nodes(topology)


def _cores(topology: Topology) -> Files:
    for number, core in enumerate(topology.cores):
        for cpu in core.cpus:
            yield f"{CPUS}/cpu{cpu}/topology/core_id", str(number)
            yield f"{CPUS}/cpu{cpu}/topology/core_cpus_list", format_cpuset(core.cpus)
    yield from _numbers("physical_package_id", ((package.id, package.cpus) for package in topology.packages))
    yield from _numbers("die_id", ((die.id, die.cpus) for die in topology.dies))


def _numbers(name: str, groups: Iterable[tuple[int, CpuSet]]) -> Files:
    for number, cpus in groups:
        for cpu in cpus:
            yield f"{CPUS}/cpu{cpu}/topology/{name}", str(number)


def _caches(level: int, groups: Iterable[CpuSet]) -> Files:
    for group in groups:
        for cpu in group:
            place = f"{CPUS}/cpu{cpu}/cache/index{level}"
            yield f"{place}/level", str(level)
            yield f"{place}/type", "Unified"
            yield f"{place}/shared_cpu_list", format_cpuset(group)


def _kinds(topology: Topology) -> Files:
    for kind in topology.cpu_kinds:
        known = {
            "cpu_capacity": kind.capacity,
            "cpufreq/cpuinfo_max_freq": kind.max_khz,
            "cpufreq/base_frequency": kind.base_khz,
        }
        for name, value in known.items():
            if value:
                yield from ((f"{CPUS}/cpu{cpu}/{name}", str(value)) for cpu in kind.cpus)


def _nodes(topology: Topology) -> Files:
    states = {
        "online": topology.nodes,
        "has_cpu": [node for node in topology.nodes if node.cpus],
        "has_memory": [node for node in topology.nodes if node.memory_bytes],
        "has_normal_memory": [node for node in topology.nodes if node.normal_memory],
        "has_generic_initiator": [node for node in topology.nodes if node.kind is MemoryKind.DEVICE],
    }
    for name, nodes in states.items():
        yield f"{NODES}/{name}", format_cpuset(frozenset(node.id for node in nodes))
    for place, node in enumerate(topology.nodes):
        yield from _node(node)
        if topology.distances:
            yield f"{NODES}/node{node.id}/distance", " ".join(map(str, topology.distances[place]))


def _node(node: NumaNode) -> Files:
    folder = f"{NODES}/node{node.id}"
    yield f"{folder}/cpulist", format_cpuset(node.cpus)
    yield f"{folder}/meminfo", f"Node {node.id} MemTotal: {node.memory_bytes // 1024} kB"
    yield f"{folder}/access0/initiators/read_bandwidth", str(BANDWIDTH_MBPS[node.kind])
    if node.kind is MemoryKind.PMEM:
        yield f"sys/bus/dax/devices/dax{node.id}.0/target_node", str(node.id)
