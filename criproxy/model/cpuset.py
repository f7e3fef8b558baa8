"""Sets of CPU or NUMA node ids in the kernel's list notation, such as ``0-3,8``.

Plain frozensets and set algebra; no wrapper class belongs here.
"""

from collections.abc import Set as AbstractSet
from functools import lru_cache

CpuSet = frozenset[int]
"""Ids of logical CPUs or, in names with ``mems``, of NUMA nodes."""

MAX_ID = 4095
"""The largest id that is accepted: the kernel's own largest configuration is 8192 bits, machines stay below half."""
_LONG = 10
"""A number with so many digits is never an id."""
_SHOWN = 60
"""Characters of an invalid text in an error message."""


def numbered(noun: str, ids: CpuSet) -> str:
    """``CPU 4``, ``CPUs 4-6``, ``NUMA node 0``."""
    return f"{noun}{'s' * (len(ids) > 1)} {format_cpuset(ids)}"


def cpus_text(text: str) -> str:
    """``CPU 3`` or ``CPUs 0-3`` for a *text* in kernel list notation, which need not be valid."""
    return f"CPU {text}" if text.isdigit() else f"CPUs {text}"


def parse_cpuset(text: str) -> CpuSet:
    """Parse kernel list notation; the empty text is the empty set.

    Raises:
        ValueError: the text is invalid; the message names the invalid part.
    """
    if not text.strip():
        return frozenset()
    return frozenset().union(*(_parse_part(part, text) for part in text.split(",")))


@lru_cache(maxsize=1024)
def parse_interned(text: str) -> CpuSet:
    """Parse as `parse_cpuset`, and return one object for all equal texts, as of the containers of a pool."""
    return parse_cpuset(text)


def _parse_part(part: str, text: str) -> range:
    first, dash, last = (word.strip() for word in part.partition("-"))
    if not _is_id(first) or (dash and not _is_id(last)):
        where = f" in {text.strip()!r}" if part != text else ""
        raise ValueError(f"{part.strip()!r}{where} is neither an id nor a range such as 0-3")
    words = (first, last or first)
    # A bound on the length keeps int() cheap for any input.
    if endless := [word for word in words if len(word) >= _LONG]:
        raise ValueError(f"{endless[0][:_SHOWN]} in {text.strip()[:_SHOWN]!r} is beyond the largest id, {MAX_ID}")
    low, high = map(int, words)
    if high > MAX_ID or low > MAX_ID:
        raise ValueError(f"{max(low, high)} in {text.strip()!r} is beyond the largest id, {MAX_ID}")
    if low > high:
        raise ValueError(f"the range {part.strip()!r} in {text.strip()!r} runs backwards")
    return range(low, high + 1)


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit()


@lru_cache(maxsize=1024)
def interned(cpus: CpuSet) -> CpuSet:
    """Return one shared object for all equal sets: then most comparisons end at once."""
    return cpus


@lru_cache(maxsize=4096)
def united(one: CpuSet, other: CpuSet) -> CpuSet:
    """Return the union of two sets, `interned`: hundreds of balloons join the same sets with every event."""
    return interned(one | other)


def format_cpuset(cpus: AbstractSet[int]) -> str:
    """Format *cpus* in kernel list notation: ascending, ranges joined, no spaces."""
    return _format(frozenset(cpus))


@lru_cache(maxsize=1024)  # the same few sets are written for every container of a pool
def _format(cpus: CpuSet) -> str:
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
