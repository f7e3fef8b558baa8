"""The policy ``template``: a complete small policy to copy. `README.md` beside this file tells how to go on.

It spreads containers over NUMA nodes: each runs on all CPUs of the node where the least is asked for so far. Nobody
owns a CPU. It is not in `BUILTIN`: no policy file can name it.
"""

from pydantic import Field

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.policy.options import Options


class TemplateOptions(Options):
    """Options of this policy, beside those that every policy has. In a policy file: ``fullPercent: 150``."""

    full_percent: int = Field(100, ge=1, le=1000)
    """How much of its CPUs may be asked for on a NUMA node before containers are refused."""


class TemplatePolicy:
    """Each container on the CPUs of one NUMA node, the least asked for first.

    This docstring's first paragraph is what editors show for the policy.
    """

    def __init__(self, options: TemplateOptions) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Layout:
        """The layout with *container* on the NUMA node that has the most room; at a resize, where it is if it fits."""
        node = self.options.within(node)  # the CPUs that this policy is to use, see `Options.usable`
        room = {cpus: self._room_milli(node, cpus, container.key) for cpus in self._pools(node, container)}
        had = node.grants.get(container.key)
        # A sort by a tuple that ends in ids: the same input gives the same answer.
        cpus = max(room, key=lambda pool: (had is not None and had.cpus <= pool and _fits(room[pool], container),
                                           room[pool], -min(pool)))  # fmt: skip
        if not _fits(room[cpus], container):
            raise NotEnough(
                f"container {container.title} asks for {container.cpu_milli}m, but the most that is left on any NUMA "
                f"node is {max(room[cpus], 0)}m, on CPUs {format_cpuset(cpus)}"
            )
        reason = f"{container.title} runs on CPUs {format_cpuset(cpus)}: of {room[cpus]}m left there it asks for "
        grant = Grant(cpus, had.mems if had else node.topology.mems)
        return Layout({**node.grants, container.key: grant}, (f"{reason}{container.cpu_milli}m",))

    def release(self, node: Node, key: str) -> Layout:
        """The layout without *key*; nobody else moves."""
        return Layout({other: grant for other, grant in node.grants.items() if other != key})

    def _pools(self, node: Node, container: Container) -> list[CpuSet]:
        """The CPUs of each NUMA node that containers may share; all of them where a machine has no NUMA nodes."""
        had = node.grants.get(container.key)
        # CPUs that somebody owns since an earlier policy stay theirs; its own the container may go on using.
        shared = node.shared_cpus | (had.exclusive if had else frozenset())
        usable = shared - self.options.reserved(node.topology) or shared
        return [cpus for numa in node.topology.nodes if (cpus := numa.cpus & usable)] or [usable]

    def _room_milli(self, node: Node, pool: CpuSet, without: str) -> int:
        asked = [
            node.containers[key].cpu_milli
            for key, grant in node.grants.items()
            if key != without and grant.cpus <= pool and key in node.containers
        ]
        return len(pool) * 10 * self.options.full_percent - sum(asked)


def _fits(room_milli: int, container: Container) -> bool:
    return container.cpu_milli <= room_milli
