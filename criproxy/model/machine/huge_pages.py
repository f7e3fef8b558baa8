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
        known = tuple(there)
        found = tuple(each for each in known if each.size_bytes == self.size_bytes)
        none = (HugePages(node, self.size_bytes, 0, 0) for node in dict.fromkeys(each.node for each in known))
        return replace(self, there=found or tuple(none))

    @property
    def is_nowhere(self) -> bool:
        """Whether no NUMA node has any of these pages, neither free nor in use."""
        return bool(self.there) and not any(each.total for each in self.there)
