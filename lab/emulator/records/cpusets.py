"""CPU and memory sets of containers, with the kernel's rules for what may be written to a cpuset file.

The texts are those of the error numbers as Go prints them, because runc passes them on.
"""

import re
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet, parse_cpuset

MAX_NODES = 1024
"""What the kernel's bitmap of NUMA nodes holds (CONFIG_NODES_SHIFT=10)."""

_RANGE = "numerical result out of range"
_INVALID = "invalid argument"
_DIGITS = r"\d{1,18}"  # more would only show how int() fails
_BIT = rf"({_DIGITS}|N)"
_REGION = re.compile(rf"{_BIT}(?:-{_BIT}(?::({_DIGITS})/({_DIGITS}))?)?", re.ASCII)


def parse_bitmap(text: str, size: int) -> CpuSet:
    """Read a list such as ``0-3,8`` as the kernel does.

    Blanks and empty regions count as commas; ``all``, ``N`` (the last bit) and ``0-7:2/4`` work.

    Args:
        text: what is written to the file.
        size: number of bits; a number beyond them is out of range.

    Raises:
        ValueError: with the text of ERANGE or EINVAL.
    """
    if text.strip() == "all":
        return frozenset(range(size))
    found: set[int] = set()
    for region in re.split(r"[,\s]+", text):
        if region:
            found |= _parse_region(region, size)
    return frozenset(found)


def _parse_region(region: str, size: int) -> set[int]:
    match = _REGION.fullmatch(region)
    if not match:
        raise ValueError(_INVALID)
    low, high, used, group = (size - 1 if part == "N" else int(part or -1) for part in match.groups())
    high = low if match[2] is None else high
    if low > high or group == 0 or used > group:
        raise ValueError(_INVALID)
    if high >= size:
        raise ValueError(_RANGE)
    if match[4] is None:
        return set(range(low, high + 1))
    return {number for number in range(low, high + 1) if (number - low) % group < used}


@dataclass(frozen=True, slots=True)
class Cpuset:
    """The two sets of a cgroup."""

    cpus: CpuSet
    mems: CpuSet


class BadCpuset(Exception):
    """A write that the kernel refuses: *value* to *file*, with the reason as text."""

    def __init__(self, file: str, value: str, reason: str) -> None:
        super().__init__(reason)
        self.file, self.value, self.reason = file, value, reason


@dataclass(frozen=True, slots=True)
class Machine:
    """The CPUs and NUMA nodes that exist, online and usable."""

    cpus: CpuSet
    mems: CpuSet

    @classmethod
    def parse(cls, cpus: str, mems: str) -> "Machine":
        """Read both lists; ValueError names the one that is empty or malformed."""
        return cls(_option("cpus", cpus), _option("mems", mems))

    def cpuset(self, cpus: str, mems: str) -> Cpuset:
        """Return the sets in force after writing both lists; an empty one inherits all of the machine.

        Raises:
            BadCpuset: if the kernel would refuse one of them.
        """
        return Cpuset(
            self._written("cpuset.cpus", cpus, max(self.cpus) + 1, self.cpus),
            self._written("cpuset.mems", mems, MAX_NODES, self.mems),
        )

    @staticmethod
    def _written(file: str, text: str, size: int, existing: CpuSet) -> CpuSet:
        if not text:
            return existing
        try:
            numbers = parse_bitmap(text, size)
        except ValueError as error:
            raise BadCpuset(file, text, str(error)) from error
        if not numbers <= existing:
            raise BadCpuset(file, text, _INVALID)
        if not numbers:
            raise BadCpuset(file, text, "no space left on device")
        return numbers


def _option(name: str, text: str) -> CpuSet:
    try:
        numbers = parse_cpuset(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if not numbers:
        raise ValueError(f"{name} is empty: name at least one, such as 0")
    return numbers
