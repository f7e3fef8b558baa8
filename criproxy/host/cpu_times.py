"""How busy the CPUs and the memory of a machine are: /proc/stat and /proc/meminfo.

psutil reads both, except for the time of single CPUs: it numbers those that are online, whatever their numbers are.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from criproxy.host.files import number_of, read_text
from criproxy.model.machine.use import CpuTime, MemoryUse

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
    cpu, ticks = number_of(name.removeprefix("cpu")), [number_of(word) for word in words[:_GUEST]]
    known = [each for each in ticks if each is not None]
    if cpu is None or len(known) != len(ticks) or len(known) <= _IDLE:
        return None
    total = sum(known)
    return cpu, CpuTime(total - known[_IDLE] - sum(known[_IOWAIT : _IOWAIT + 1]), total)


def read_node_time(host_root: Path) -> CpuTime | None:
    """The time of all CPUs together, in seconds since the boot; None where the kernel does not say."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        with _psutil(host_root) as psutil:
            times = psutil.cpu_times()
        guests = times.guest + times.guest_nice  # the other columns contain them
        total = sum(times) - guests
        return CpuTime(total - times.idle - times.iowait, total)
    return None


def read_memory_use(host_root: Path) -> MemoryUse | None:
    """The memory of the machine; None where the kernel does not say."""
    with suppress(OSError, ValueError, LookupError):
        with _psutil(host_root) as psutil:
            memory = psutil.virtual_memory()
        return MemoryUse(memory.total, memory.available)
    return None


@contextmanager
def _psutil(host_root: Path) -> Iterator[ModuleType]:
    """Let psutil read below *host_root*; it is imported late, as that takes tens of milliseconds."""
    import psutil

    usual, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(host_root / "proc")
    try:
        yield psutil
    finally:
        psutil.PROCFS_PATH = usual
