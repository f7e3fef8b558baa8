"""How much was used between two readings of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from criproxy.model.machine.use import ContainerUse, CpuTime, MemoryUse


@dataclass(frozen=True, slots=True)
class Reading:
    """What the kernel has counted up to one moment."""

    at_s: float
    """On a clock that does not jump."""
    cpus: Mapping[int, CpuTime] = field(default_factory=dict)
    containers: Mapping[str, ContainerUse] = field(default_factory=dict)
    """By container id."""
    memory: MemoryUse | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """What is in use."""

    load: Mapping[int, float] = field(default_factory=dict)
    """By CPU: which part of its time was busy, from 0 to 1. A CPU of which that is not known is missing."""
    cpu_milli: Mapping[str, int] = field(default_factory=dict)
    """By container id: CPU time in milli-CPU; 1000 is one CPU all the time."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """By container id."""
    memory: MemoryUse | None = None
    """Of the machine."""

    @property
    def mean_load(self) -> float | None:
        """Of all CPUs together; None where it is not known."""
        return sum(self.load.values()) / len(self.load) if self.load else None


def rates(before: Reading, now: Reading) -> Rates:
    """What was used from *before* to *now*; a counter that went back, such as that of a new cgroup, says nothing."""
    passed_s = now.at_s - before.at_s
    load, cpu_milli = dict[int, float](), dict[str, int]()
    for cpu, time in now.cpus.items():
        old = before.cpus.get(cpu)
        if old is not None and time.total > old.total:
            load[cpu] = min(max((time.busy - old.busy) / (time.total - old.total), 0.0), 1.0)
    for key, use in now.containers.items():
        past = before.containers.get(key)
        if past is not None and use.cpu_ns >= past.cpu_ns and passed_s > 0:
            cpu_milli[key] = round((use.cpu_ns - past.cpu_ns) / passed_s / 1e6)
    memory = {key: use.memory_bytes for key, use in now.containers.items() if use.memory_bytes is not None}
    return Rates(load, cpu_milli, memory, now.memory)
