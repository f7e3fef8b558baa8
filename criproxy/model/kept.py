"""Kept CPUs of one pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from criproxy.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class Kept:
    """Exclusive CPUs of containers that have ended, for their next attempts, which may have some of them again."""

    by_name: Mapping[str, CpuSet] = field(default_factory=dict)
    """By container name; those that ended first come first."""

    @property
    def cpus(self) -> CpuSet:
        """All kept CPUs."""
        return frozenset[int]().union(*self.by_name.values())

    def of(self, name: str) -> CpuSet:
        """Return the kept CPUs of the container *name*."""
        return self.by_name.get(name, frozenset())

    def with_last(self, name: str, cpus: CpuSet) -> "Kept":
        """Return a copy after the container *name* has ended on *cpus*."""
        return Kept({**{other: had for other, had in self.by_name.items() if other != name}, name: cpus})

    def less(self, name: str, cpus: CpuSet) -> "Kept":
        """Return a copy without these *cpus* of the container *name*."""
        names = {**self.by_name, name: self.of(name) - cpus}
        return Kept({other: had for other, had in names.items() if had})

    def within(self, cpus: CpuSet) -> "Kept":
        """Return the part that is in *cpus*."""
        parts = ((name, had & cpus) for name, had in self.by_name.items())
        return Kept({name: part for name, part in parts if part})
