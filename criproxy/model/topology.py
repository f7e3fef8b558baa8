"""The machine as a value: what sysfs says, and which part of it pods may use.

Cores, packages and NUMA nodes list all online CPUs; `Topology.cpus` and `Topology.mems` are what the
pods' cgroup allows. Reading it from a machine is the job of `discovery`, making one up that of `sim`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from criproxy.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node; either of its CPUs and its memory may be missing."""

    id: int
    cpus: CpuSet
    """Online CPUs of this node."""
    memory_bytes: int
    """0 where the node has none or where it is not known."""
    normal_memory: bool = True
    """The kernel can allocate for itself here; False for movable-only nodes and those without memory."""


@dataclass(frozen=True, slots=True)
class Core:
    """The hardware threads that share one physical core."""

    id: int
    """Its lowest CPU: the kernel's core ids are not unique in a machine."""
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class Package:
    """One socket."""

    id: int
    cpus: CpuSet


@dataclass(frozen=True)
class Topology:
    """One machine. Same machine, same value: all tuples are in ascending order of id."""

    cpus: CpuSet
    """CPUs that pods may use: online and allowed by their parent cgroup."""
    mems: CpuSet
    """NUMA nodes with memory that pods may use; empty where nothing is known of NUMA."""
    nodes: tuple[NumaNode, ...]
    cores: tuple[Core, ...]
    packages: tuple[Package, ...]
    online_cpus: CpuSet
    """Every CPU that runs, allowed or not."""

    @cached_property
    def node_by_id(self) -> Mapping[int, NumaNode]:
        """The NUMA nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def _node_of_cpu(self) -> Mapping[int, int]:
        return {cpu: node.id for node in self.nodes for cpu in node.cpus}

    def nodes_of(self, cpus: Iterable[int]) -> CpuSet:
        """Ids of the NUMA nodes that *cpus* belong to; a CPU in no node adds none."""
        of = self._node_of_cpu
        return frozenset(of[cpu] for cpu in cpus if cpu in of)

    def memory_bytes(self, mems: Iterable[int]) -> int:
        """Memory of the NUMA nodes *mems* together; 0 for those that are unknown."""
        return sum(self.node_by_id[mem].memory_bytes for mem in mems if mem in self.node_by_id)
