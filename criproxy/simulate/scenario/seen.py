"""What assertions look at: where containers are, and in what parts of the machine."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of one container, as the kernel would have it."""

    cpus: CpuSet
    mems: CpuSet
    exclusive: CpuSet = frozenset()
    pool: str = ""
    pod: str = ""
    """The name of its pod."""


@dataclass(frozen=True)
class Seen:
    """All containers that are there."""

    topology: Topology
    placed: Mapping[str, Placed]
    """By the container's name."""

    def unshared(self, name: str) -> CpuSet:
        """The CPUs of *name* that nobody else may use."""
        others = (placed.cpus for other, placed in self.placed.items() if other != name)
        return self.placed[name].cpus - frozenset().union(*others)

    def units(self, what: str, name: str) -> frozenset[Hashable]:
        """The parts of the machine that *name* has; *what* is one of `UNITS`."""
        placed = self.placed[name]
        if what == "mems":
            return frozenset(placed.mems)
        of = self._unit_of[what]
        return frozenset(of[cpu] for cpu in placed.cpus if cpu in of)

    @cached_property
    def _unit_of(self) -> Mapping[str, Mapping[int, Hashable]]:
        """For each kind of part, the part of each CPU."""
        topology = self.topology
        packages = {cpu: package.id for package in topology.packages for cpu in package.cpus}
        dies: dict[int, Hashable] = {cpu: (package, 0) for cpu, package in packages.items()}
        dies |= {cpu: (die.package, die.id) for die in topology.dies for cpu in die.cpus}
        return {
            "cpus": {cpu: cpu for cpu in topology.online_cpus},
            "cores": {cpu: core.id for cpu, core in topology.core_of.items()},
            "l3": {cpu: min(group) for group in topology.l3_groups for cpu in group},
            "nodes": {cpu: node.id for node in topology.nodes for cpu in node.cpus},
            "dies": dies,
            "pkgs": packages,
            "packages": packages,
        }


@dataclass(frozen=True, slots=True)
class Moment:
    """Where everybody is after something has happened."""

    happened: tuple[str, ...]
    """Since the moment before, such as ``web starts``."""
    placed: Mapping[str, Placed]
    """By the container's name, in the order in which they came."""


UNITS = ("cpus", "cores", "l3", "nodes", "dies", "pkgs", "packages", "mems")
"""What can be counted and compared; ``mems`` are the NUMA nodes of the memory."""

Check = Callable[[Seen], str]
"""What is not as expected, in a sentence; empty if all is well."""
