"""Huge pages: those that a machine has, and those that a container asks for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class HugePages:
    """The huge pages of one size in one NUMA node."""

    node: int
    size_bytes: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class HugePageRequest:
    """The huge pages of one size that a container may use."""

    size_bytes: int
    limit_bytes: int
    there: tuple[HugePages, ...] = ()
    """Those of the machine when the container was created, by NUMA node; empty if unknown."""

    def beside(self, there: Iterable[HugePages]) -> "HugePageRequest":
        """Return the same request with those of a machine's pages that have its size."""
        return replace(self, there=tuple(each for each in there if each.size_bytes == self.size_bytes))
