"""How much CPU time and memory is in use, as the kernel counts it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuTime:
    """The time of one or all CPUs since the boot; only the ratio of both has a meaning."""

    busy: float
    total: float


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
