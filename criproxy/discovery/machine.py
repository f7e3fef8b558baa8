"""sysfs → `Topology`: which CPUs run, how they hang together, and which of them pods may use."""

from collections.abc import Iterator
from pathlib import Path

from criproxy.discovery.cgroup import read_allowed
from criproxy.discovery.files import numbered, read_ids, read_mask, read_text
from criproxy.errors import CriproxyError
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.topology import Core, NumaNode, Package, Topology

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"


def discover(host_root: Path = Path("/")) -> Topology:
    """Read the machine whose /sys and /proc lie under *host_root*.

    Raises:
        CriproxyError: no CPU can be found there, a file holds nonsense, or the pods' cgroup allows no online CPU.
    """
    online = _online_cpus(host_root / CPUS)
    nodes = tuple(_numa_nodes(host_root / NODES, online))
    allowed = read_allowed(host_root)
    cpus = online if allowed.cpus is None else online & allowed.cpus
    if not cpus:
        text = format_cpuset(allowed.cpus or frozenset())
        raise CriproxyError(f"{allowed.path} allows the pods CPUs {text}, none of which is online")
    mems = frozenset(node.id for node in nodes if node.memory_bytes) or frozenset(node.id for node in nodes)
    return Topology(
        cpus=cpus,
        mems=mems if allowed.mems is None else mems & allowed.mems,
        nodes=nodes,
        cores=tuple(_cores(host_root / CPUS, online)),
        packages=tuple(_packages(host_root / CPUS, online)),
        online_cpus=online,
    )


def _online_cpus(folder: Path) -> CpuSet:
    online = read_ids(folder / "online")
    if online is None:
        present = numbered(folder, "cpu")
        online = frozenset(cpu for cpu in present if read_text(folder / f"cpu{cpu}/online") != "0")
    if not online:
        raise CriproxyError(f"no CPUs found in {folder}: the host root must be the folder that holds the host's sys")
    return online


def _numa_nodes(folder: Path, online: CpuSet) -> Iterator[NumaNode]:
    ids = read_ids(folder / "online")
    normal = read_ids(folder / "has_normal_memory")
    for number in sorted(numbered(folder, "node") if ids is None else ids):
        place = folder / f"node{number}"
        cpus = read_ids(place / "cpulist")
        if cpus is None:
            cpus = read_mask(place / "cpumap") or frozenset()
        memory_bytes = _memory_bytes(place / "meminfo")
        yield NumaNode(number, cpus & online, memory_bytes, number in normal if normal else memory_bytes > 0)


def _memory_bytes(meminfo: Path) -> int:
    """MemTotal of ``Node 0 MemTotal: 16384 kB``; 0 where the file or the line is missing."""
    for line in (read_text(meminfo) or "").splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == "MemTotal:" and words[3].isdigit():
            return int(words[3]) * 1024
    return 0


def _cores(folder: Path, online: CpuSet) -> Iterator[Core]:
    seen: set[int] = set()
    for cpu in sorted(online):
        if cpu not in seen:
            threads = _threads(folder / f"cpu{cpu}/topology", cpu) & online
            seen |= threads
            yield Core(cpu, threads)


def _threads(topology: Path, cpu: int) -> CpuSet:
    """The threads of the core of *cpu*; newer kernels name the file after cores, older ones after threads."""
    threads = read_ids(topology / "core_cpus_list", topology / "thread_siblings_list")
    if threads is None:
        threads = read_mask(topology / "core_cpus", topology / "thread_siblings")
    return (threads or frozenset()) | {cpu}


def _packages(folder: Path, online: CpuSet) -> Iterator[Package]:
    """By the kernel's id, which is -1 on machines where it knows none: then all CPUs are one package."""
    cpus_of: dict[int, set[int]] = {}
    for cpu in online:
        text = read_text(folder / f"cpu{cpu}/topology/physical_package_id") or ""
        cpus_of.setdefault(int(text) if text.removeprefix("-").isdigit() else -1, set()).add(cpu)
    for number, cpus in sorted(cpus_of.items()):
        yield Package(number, frozenset(cpus))
