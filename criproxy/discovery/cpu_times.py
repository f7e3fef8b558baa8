"""How busy each CPU and the memory of a machine are: /proc/stat and /proc/meminfo."""

from pathlib import Path

from criproxy.discovery.files import number_of, read_text
from criproxy.model.use import CpuTime, MemoryUse

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


def read_memory_use(host_root: Path) -> MemoryUse | None:
    """The memory of the machine; None where /proc/meminfo does not say."""
    amounts: dict[str, int] = {}
    for line in (read_text(host_root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        value = number_of((rest.split() or [""])[0])
        if value is not None:
            amounts[name] = value * 1024
    if not {"MemTotal", "MemAvailable"} <= amounts.keys():
        return None
    return MemoryUse(amounts["MemTotal"], amounts["MemAvailable"])
