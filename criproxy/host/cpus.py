"""CPUs and their structure: cores, dies, packages, caches; which ones are online, and which the kernel isolates."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from criproxy.errors import CriproxyError
from criproxy.host.files import ids_of, numbered, read_ids, read_number, read_text
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Core, Die, Package

CPUS = "sys/devices/system/cpu"
K = TypeVar("K")


def grouped(parts: Iterable[tuple[K, CpuSet]]) -> dict[K, CpuSet]:
    """Return all CPUs of each key."""
    cpus_of: dict[K, CpuSet] = {}
    for key, cpus in parts:
        cpus_of[key] = cpus_of.get(key, frozenset()) | cpus
    return cpus_of


def read_online(host_root: Path) -> CpuSet:
    """Return the online CPUs.

    Raises:
        CriproxyError: There are none, so that this is not a host root.
    """
    folder = host_root / CPUS
    online = read_ids(folder / "online")
    if online is None:
        online = frozenset(cpu for cpu in numbered(folder, "cpu") if read_text(folder / f"cpu{cpu}/online") != "0")
    if not online:
        must = "the host root must be the directory that contains the host's sys"
        raise CriproxyError(f"no CPUs found in {folder}: {must}")
    return online


def read_present(host_root: Path) -> CpuSet:
    """Return the CPUs that are plugged in: `offline` also includes those that the kernel could have had."""
    present = read_ids(host_root / CPUS / "present")
    return numbered(host_root / CPUS, "cpu") if present is None else present


def read_isolated(host_root: Path) -> CpuSet:
    """Return the isolated CPUs: the kernel's list, or for older kernels its command line (``isolcpus``)."""
    isolated = read_ids(host_root / CPUS / "isolated")
    return _isolcpus(read_text(host_root / "proc/cmdline") or "") if isolated is None else isolated


def _isolcpus(command_line: str) -> CpuSet:
    """Return the list of ``isolcpus=[flag,…]list``; empty for notations that only the kernel understands."""
    cpus: CpuSet = frozenset()
    for word in command_line.split():
        name, _, value = word.partition("=")
        if name == "isolcpus":
            parts = [part for part in value.split(",") if part[:1].isdigit()]
            # Kernels that support strides and groups, such as 0-31:1/2, list isolated CPUs.
            cpus = ids_of(",".join(parts)) or frozenset()
    return cpus


def read_cores(host_root: Path, online: CpuSet) -> tuple[Core, ...]:
    """Return the cores with their online threads, in order of their first CPU."""
    return tuple(Core(min(each), each) for each in _groups(online, partial(_threads, host_root / CPUS)))


def _groups(online: CpuSet, of: Callable[[int], CpuSet]) -> Iterator[CpuSet]:
    """Yield what each CPU is in a group with, without those of groups before, in order of the first CPU."""
    seen = frozenset[int]()
    for cpu in sorted(online):
        if cpu not in seen and (group := (of(cpu) & online) - seen):
            seen |= group
            yield group


def _threads(folder: Path, cpu: int) -> CpuSet:
    """Return the threads of the core of *cpu*; newer kernels name the file after cores, older ones after threads."""
    place = f"{folder}/cpu{cpu}/topology"
    masks = f"{place}/core_cpus", f"{place}/thread_siblings"
    threads = read_ids(f"{place}/core_cpus_list", f"{place}/thread_siblings_list", masks=masks) or frozenset()
    # Older kernels also list the two cores of an AMD module as threads of one core, but give them two numbers.
    core = read_text(f"{place}/core_id") if threads - {cpu} else None
    same = (other for other in threads if read_text(f"{folder}/cpu{other}/topology/core_id") in (core, None))
    return frozenset(same) | {cpu}


def read_packages(host_root: Path, cores: Iterable[Core]) -> tuple[Package, ...]:
    """Return packages by the kernel's ID, which is -1 if the kernel does not know it: then all CPUs are one package."""
    cpus_of = grouped((_package_id(host_root, core), core.cpus) for core in cores)
    return tuple(Package(number, cpus) for number, cpus in sorted(cpus_of.items()))


def read_dies(host_root: Path, cores: Iterable[Core]) -> tuple[Die, ...]:
    """Return dies, in order of package and ID; none if every package is one die."""
    numbered_cores = ((read_number(f"{host_root}/{CPUS}/cpu{core.id}/topology/die_id"), core) for core in cores)
    known = ((die, core) for die, core in numbered_cores if die is not None)  # the file exists since Linux 5.2
    cpus_of = grouped(((_package_id(host_root, core), die), core.cpus) for die, core in known)
    if len(cpus_of) == len({package for package, _ in cpus_of}):
        return ()
    return tuple(Die(package, number, cpus) for (package, number), cpus in sorted(cpus_of.items()))


def _package_id(host_root: Path, core: Core) -> int:
    number = read_number(f"{host_root}/{CPUS}/cpu{core.id}/topology/physical_package_id")
    return -1 if number is None else number


def read_caches(host_root: Path, online: CpuSet, level: int) -> tuple[CpuSet, ...]:
    """Return the groups of online CPUs that share a data cache of *level*, in order of their first CPU."""
    return tuple(_groups(online, lambda cpu: _sharing(f"{host_root}/{CPUS}/cpu{cpu}/cache", level)))


def _sharing(cache: str, level: int) -> CpuSet:
    """Return the CPUs that share the cache of *level* in the directory *cache*; none if there is no such cache."""
    # The number of the directory usually is the level: check that one first.
    for index in sorted(numbered(cache, "index"), key=lambda number: (number != level, number)):
        place = f"{cache}/index{index}"
        if read_number(f"{place}/level") == level and read_text(f"{place}/type") != "Instruction":
            return read_ids(f"{place}/shared_cpu_list", masks=[f"{place}/shared_cpu_map"]) or frozenset()
    return frozenset()
