"""CPU and memory sets of containers, with the kernel's rules for what may be written to a cpuset file.

The texts are those of the error numbers as Go prints them, because runc passes them on.
"""

from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet, parse_cpuset

MAX_NODES = 1024
"""What the kernel's bitmap of NUMA nodes holds (CONFIG_NODES_SHIFT=10)."""


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

    def __post_init__(self) -> None:
        if not (self.cpus and self.mems):
            raise ValueError("name at least one CPU and one NUMA node, such as 0")

    def cpuset(self, cpus: str, mems: str) -> Cpuset:
        """Return the sets in force after writing both lists; an empty one inherits all of the machine.

        Raises:
            BadCpuset: if the kernel would refuse one of them.
        """
        return Cpuset(
            _written("cpuset.cpus", cpus, max(self.cpus) + 1, self.cpus),
            _written("cpuset.mems", mems, MAX_NODES, self.mems),
        )


def _written(file: str, text: str, size: int, existing: CpuSet) -> CpuSet:
    if not text:
        return existing
    try:
        numbers = parse_cpuset(text)
    except ValueError as error:
        raise BadCpuset(file, text, "invalid argument") from error
    if max(numbers, default=0) >= size:
        raise BadCpuset(file, text, "numerical result out of range")
    if not numbers or not numbers <= existing:
        raise BadCpuset(file, text, "invalid argument")
    return numbers
