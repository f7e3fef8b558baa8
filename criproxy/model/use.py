"""How much CPU time and memory is in use, as the kernel counts it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuTime:
    """The time of one CPU since the boot, in ticks."""

    busy: int
    total: int


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What the cgroup of one container has used."""

    cpu_ns: int
    """CPU time since it was created."""
    memory_bytes: int | None
    """Memory that cannot be reclaimed easily, as the kubelet counts it; None where the kernel does not say."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of the machine."""

    total_bytes: int
    available_bytes: int
    """What processes can get without swapping."""
