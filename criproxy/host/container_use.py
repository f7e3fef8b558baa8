"""How much CPU time and memory containers have used, and how often their CPU limit has made them wait.

All is read from their cgroups, of v1 (the controllers cpuacct, cpu and memory) and v2, which are found by the
containers' ids where they are not known: runtimes name them by these, with or without a prefix and ``.scope``.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import dirname

from criproxy.host.cgroup import ContainerGroup
from criproxy.host.files import number_of, read_text
from criproxy.model.machine.hardware import ContainerUse, CpuTime, MemoryUse
from criproxy.model.resources import CfsQuota

_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Columns of a line of /proc/stat. The time of guests, from `_GUEST` on, is also in the columns before."""


def read_cpu_times(host_root: Path) -> dict[int, CpuTime]:
    """The time of each online CPU; empty where /proc/stat cannot be read."""
    lines = (read_text(host_root / "proc/stat") or "").splitlines()
    found = (_cpu_time(line) for line in lines if line.startswith("cpu"))
    return dict(each for each in found if each is not None)


def _cpu_time(line: str) -> tuple[int, CpuTime] | None:
    """A line such as ``cpu7 10 0 20 970 0 0 0 0 0 0``; None for the sum of all CPUs and for nonsense."""
    name, *words = line.split()
    cpu, time = number_of(name.removeprefix("cpu")), _time(words)
    return None if cpu is None or time is None else (cpu, time)


def _time(words: list[str]) -> CpuTime | None:
    ticks = [number_of(word) for word in words[:_GUEST]]
    known = [each for each in ticks if each is not None]
    if len(known) != len(ticks) or len(known) <= _IDLE:
        return None
    total = sum(known)
    return CpuTime(total - known[_IDLE] - sum(known[_IOWAIT : _IOWAIT + 1]), total)


def read_node_time(host_root: Path) -> CpuTime | None:
    """The time of all CPUs together since the boot; None where the kernel does not say."""
    line = (read_text(host_root / "proc/stat") or "").partition("\n")[0]
    name, *words = line.split() or [""]
    return _time(words) if name == "cpu" else None


def read_memory_use(host_root: Path) -> MemoryUse | None:
    """The memory of the machine; None where the kernel does not say."""
    total, available = (_counter(f"{host_root}/proc/meminfo", name) for name in ("MemTotal:", "MemAvailable:"))
    return None if total is None or available is None else MemoryUse(total * 1024, available * 1024)


MAX_DEPTH = 8
"""Levels of cgroups that are searched: kubelet, QoS class, pod, container, and some above."""
MAX_GROUPS = 100_000
"""Cgroups that one search looks at."""
SEARCH_EVERY = 8
"""A container without a cgroup, such as one of an emulated runtime, is looked for again with every so many readings."""
_SCOPE = ".scope"


@dataclass(slots=True)
class ContainerCgroups:
    """Reads the cgroups below *host_root*, and remembers where they are."""

    host_root: Path = Path("/")
    _places: dict[str, str] = field(default_factory=dict)
    """Of each container that was found, the path of its cgroup below the mount."""
    _missing: frozenset[str] = frozenset()
    _reads: int = 0

    def read(self, ids: Collection[str]) -> dict[str, ContainerUse]:
        """What those of the containers *ids* have used that have a cgroup."""
        mounts, wanted = _mounts(self.host_root), frozenset(filter(None, ids))
        self._places = {key: place for key, place in self._places.items() if key in wanted}
        self._search(mounts.cpu, wanted - self._places.keys())
        found = ((key, mounts.read(place)) for key, place in self._places.items())
        used = {key: use for key, use in found if use is not None}
        self._places = {key: self._places[key] for key in used}
        return used

    def _search(self, mount: Path, unknown: frozenset[str]) -> None:
        """Look for the cgroups of *unknown*, unless it would be in vain."""
        self._reads += 1
        if unknown - self._missing or (unknown and self._reads % SEARCH_EVERY == 0):
            self._places |= find_cgroups(mount, unknown)
        self._missing = unknown - self._places.keys()


@dataclass(frozen=True, slots=True)
class _Mounts:
    """Where the counters of CPU time and of memory are; the same place for cgroup v2."""

    cpu: Path
    memory: Path
    unified: bool

    def read(self, place: str) -> ContainerUse | None:
        """What the cgroup at *place* has used; None if it is gone."""
        if self.unified:
            usage_us = _counter(f"{self.cpu}/{place}/cpu.stat", "usage_usec")
            cpu_ns = None if usage_us is None else usage_us * 1000
            names = ("memory.current", "inactive_file")
        else:
            cpu_ns = number_of(read_text(f"{self.cpu}/{place}/cpuacct.usage") or "")
            names = ("memory.usage_in_bytes", "total_inactive_file")
        return None if cpu_ns is None else ContainerUse(cpu_ns, _memory_bytes(f"{self.memory}/{place}", *names))


def _mounts(host_root: Path) -> _Mounts:
    root = host_root / "sys/fs/cgroup"
    for name in ("cpuacct", "cpu,cpuacct"):
        if (root / name).is_dir():
            return _Mounts(root / name, root / "memory", unified=False)
    return _Mounts(root, root, unified=True)


def _memory_bytes(folder: str, usage: str, inactive: str) -> int | None:
    used = number_of(read_text(f"{folder}/{usage}") or "")
    if used is None:
        return None
    return max(0, used - (_counter(f"{folder}/memory.stat", inactive) or 0))


def _counter(path: str, name: str) -> int | None:
    """The value of the line ``name value`` of a file."""
    text = read_text(path) or ""
    at = text.find(f"{name} ") if text.startswith(f"{name} ") else text.find(f"\n{name} ") + 1
    if at == 0 and not text.startswith(f"{name} "):
        return None
    return number_of(text[at:].split(None, 2)[1])


def find_cgroups(mount: Path, ids: Collection[str]) -> dict[str, str]:
    """The paths below *mount* of the cgroups that are named by *ids*; of one name, that above the others."""
    found: dict[str, str] = {}
    top, seen = str(mount), 0
    for folder, names, _ in os.walk(top):
        place = folder[len(top) + 1 :]
        for name in names:
            for key in _ids_in(name):
                if key in ids:
                    found.setdefault(key, f"{place}/{name}".lstrip("/"))
        seen += len(names)
        if seen > MAX_GROUPS:
            break
        if place.count("/") == MAX_DEPTH - 2:
            names.clear()
    return found


def _ids_in(name: str) -> tuple[str, ...]:
    """The ids that a cgroup named *name* may belong to: the name, and what follows the prefix of a runtime."""
    plain = name.removesuffix(_SCOPE)
    return (plain, plain.partition("-")[2], plain.rpartition("-")[2])


_NS = 1000
"""Nanoseconds in a microsecond: with cgroup v1, times are in these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """What the kernel has counted of a cgroup since it was made."""

    throttled_us: int = 0
    """How long its CPUs had to wait for the next period, in all."""
    throttled_periods: int = 0
    periods: int = 0
    """Those in which it ran, with a limit."""
    bursts: int | None = None
    """The periods in which it used more than its limit; None: the kernel has no bursts."""
    burst_us: int | None = None
    """How much more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimit:
    """The CPU limit of a pod."""

    quota: CfsQuota | None
    """None: it has none."""
    throttling: Throttling | None
    """None: unknown."""


def read_throttling(group: ContainerGroup) -> Throttling | None:
    """Return what the kernel has counted of *group*; None if it is gone, or has no controller for that."""
    lines = (line.split() for line in (read_text(f"{group.folder('cpu')}/cpu.stat") or "").splitlines())
    found = {words[0]: number for words in lines if len(words) == 2 and (number := number_of(words[1])) is not None}

    def time_us(name: str) -> int | None:
        if group.unified or (time_ns := found.get(f"{name}_time")) is None:
            return found.get(f"{name}_usec")
        return time_ns // _NS

    throttled_us, periods, throttled = time_us("throttled"), found.get("nr_periods"), found.get("nr_throttled")
    if throttled_us is None or periods is None or throttled is None:
        return None
    return Throttling(
        throttled_us=throttled_us,
        throttled_periods=throttled,
        periods=periods,
        bursts=found.get("nr_bursts"),
        burst_us=time_us("burst"),
    )


def read_pod_limit(container: ContainerGroup) -> PodLimit | None:
    """Return the limit of the pod whose *container* has this cgroup; None if it cannot be read."""
    pod = replace(container, below=dirname(container.below))
    folder = pod.folder("cpu")
    if pod.unified:
        words = (read_text(f"{folder}/cpu.max") or "").split()
    else:
        words = [read_text(f"{folder}/cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    period_us = number_of(words[1]) if len(words) == 2 else None
    if period_us is None:
        return None
    return PodLimit(quota=CfsQuota.sent(number_of(words[0]) or 0, period_us), throttling=read_throttling(pod))
