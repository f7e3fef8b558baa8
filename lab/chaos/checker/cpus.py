"""Sets of CPUs in the kernel's list format."""

from collections.abc import Iterable

CpuSet = frozenset[int]


def parse(text: str) -> CpuSet:
    """Read ``0-3,8``; ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def show(cpus: Iterable[int]) -> str:
    """The same, for people: ``0,1,2,8`` (``-`` for none)."""
    return ",".join(map(str, sorted(cpus))) or "-"
