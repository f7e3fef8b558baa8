"""A class and the sizes of a container → the content of cgroup files, as the kernel shows it when it is read back."""

from collections.abc import Iterator

from criproxy.model.controls import BURST, WEIGHT_FILES
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.topology import Topology
from criproxy.model.workload import Container
from criproxy.placement.classes.amounts import WHILE_IDLE, Amount, Percent
from criproxy.placement.classes.options import CpuOptions, MemoryOptions
from criproxy.placement.classes.table import Parts

_CAPACITY = 1024
"""SCHED_CAPACITY_SCALE: the kernel keeps clamps as parts of it, and shows the whole as max."""
_LONG_MAX = (1 << 63) - 1


def values_of(parts: Parts, container: Container, machine: Controllable, topology: Topology) -> dict[str, str]:
    """Return what *container* has if all of its classes are *parts*, by file; the machine may lack some of the files.

    None with cgroup v1, which has no such files: there, `ClassParts.bursts` are applied by the controls service.
    """
    found: dict[str, str] = {}
    if machine.unified:
        found |= {**dict(_burst(parts.cpu, container)), **dict(_cpu_values(parts.cpu))} if parts.cpu else {}
        found |= dict(_memory_values(parts.memory, container, machine.page_bytes)) if parts.memory else {}
        if parts.blockIO and parts.blockIO.weight is not None:
            file = next((file for file in WEIGHT_FILES if topology.has_file(file)), WEIGHT_FILES[0])
            found[file] = f"default {parts.blockIO.weight}"
    return found


def _burst(cpu: CpuOptions, container: Container) -> Iterator[tuple[str, str]]:
    quota = container.asked_quota
    if cpu.burst is not None and cpu.burst != WHILE_IDLE and quota is not None:
        yield BURST, str(quota.quota_us * cpu.burst.hundredths // 10_000)


def _cpu_values(cpu: CpuOptions) -> Iterator[tuple[str, str]]:
    if cpu.weight is not None:
        yield "cpu.weight", str(cpu.weight)
    if cpu.idle is not None:
        yield "cpu.idle", str(int(cpu.idle))
    if cpu.uclamp_min is not None:
        yield "cpu.uclamp.min", _clamp(cpu.uclamp_min)
    if cpu.uclamp_max is not None:
        yield "cpu.uclamp.max", _clamp(cpu.uclamp_max)


def _clamp(percent: Percent) -> str:
    parts = (percent.hundredths * _CAPACITY + 5_000) // 10_000  # as capacity_from_percent in kernel/sched/core.c
    return "max" if parts == _CAPACITY else f"{percent.hundredths // 100}.{percent.hundredths % 100:02}"


def _memory_values(memory: MemoryOptions, container: Container, page_bytes: int) -> Iterator[tuple[str, str]]:
    limit, asked = container.memory_limit_bytes or None, container.memory_request_bytes
    request = asked.low if asked is not None else None
    high = _bytes(memory.high, limit, limit)
    if high is not None and high >= page_bytes:  # a container cannot run without any memory
        yield "memory.high", _pages(high, page_bytes)
    for name, amount in (("low", memory.low), ("min", memory.min)):
        if (size := _bytes(amount, request, limit)) is not None:
            yield f"memory.{name}", _pages(size, page_bytes)
    if (size := _bytes(memory.swap_max, limit, None)) is not None:
        yield "memory.swap.max", _pages(size, page_bytes)
    if memory.oom_group is not None:
        yield "memory.oom.group", str(int(memory.oom_group))


def _bytes(amount: Amount | None, whole: int | None, most: int | None) -> int | None:
    """Return the size that *amount* means, at most *most*; None if it is none, or a percentage of nothing."""
    if amount is None or (amount.hundredths is not None and whole is None):
        return None
    size = amount.of(whole or 0)
    return size if most is None else min(size, most)


def _pages(size: int, page_bytes: int) -> str:
    pages = size // page_bytes
    return "max" if pages >= _LONG_MAX // page_bytes else str(pages * page_bytes)  # as PAGE_COUNTER_MAX
