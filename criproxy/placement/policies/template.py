"""The policy ``template``: a complete small policy to copy. `README.md` in this folder shows how to go on.

It spreads containers over NUMA nodes: each runs on all CPUs of the node with the smallest requests so far. No CPU
is exclusive. The policy is not in `BUILTIN`: no policy file can name it.
"""

from collections.abc import Mapping

from pydantic import Field

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.rank import Candidate, Candidates, Criterion, Row, Unit, compared, ranked
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Entry
from criproxy.placement.policies.parts import no_shared_cpu


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

    def place(self, node: Node, container: Container) -> Change:
        """The NUMA node that has the most room; at a resize, where it is if it fits."""
        node = self.options.within(node)  # the CPUs that this policy is to use, see `Options.usable`
        room = self._room_milli(node, container)
        order = self._order(node, container, room)
        if not room:
            raise no_shared_cpu(node.topology, container)
        if not order:
            cpus = max(room, key=lambda pool: (room[pool], -min(pool)))
            raise NotEnough(
                f"container {container.title} asks for {container.cpu_milli}m, but the most that is left on any NUMA "
                f"node is {max(room[cpus], 0)}m, on {numbered('CPU', cpus)}"
            )
        cpus = next(pool for pool in room if min(pool) == order[0].index)
        reason = f"{container.title} runs on {numbered('CPU', cpus)}: of {room[cpus]}m left there it asks for "
        had = node.grants.get(container.key)
        grant = Grant(cpus, had.mems if had else node.topology.mems)
        return Change({container.key: grant}, (f"{reason}{container.cpu_milli}m",))

    def candidates(self, node: Node, container: Container) -> Candidates:
        """The NUMA nodes in the order in which `place` prefers them: `criproxy explain` shows it. May be left out."""
        node = self.options.within(node)
        room = self._room_milli(node, container)
        missing = {_name(pool): container.cpu_milli - milli for pool, milli in room.items()}
        lacking = [Row(name, lacks=f"{milli}m") for name, milli in missing.items() if milli > 0]
        return compared("NUMA nodes", self._order(node, container, room), lacking)

    def _order(self, node: Node, container: Container, room: Mapping[CpuSet, int]) -> list[Candidate]:
        """The pools with room, best first. It ends in ids: the same input gives the same answer."""
        had = node.grants.get(container.key)
        return ranked(
            Candidate(min(pool), _name(pool), (
                Criterion("it is already there", int(had is None or not had.cpus <= pool)),
                Criterion("it has more room", -milli, Unit.MORE_MILLI),
            ))
            for pool, milli in room.items() if container.cpu_milli <= milli
        )  # fmt: skip

    def release(self, node: Node, left: Grant) -> Change:
        """No other container moves."""
        return Change({})

    def _pools(self, node: Node, container: Container) -> list[CpuSet]:
        """The CPUs of each NUMA node that containers may share; all of them where a machine has no NUMA nodes."""
        # CPUs that are exclusive since an earlier policy stay so; the container may go on using its own.
        shared = node.shared_cpus | node.own_cpus(container.key)
        usable = shared - self.options.reserved(node.topology) or shared
        return [cpus for numa in node.topology.nodes if (cpus := numa.cpus & usable)] or ([usable] if usable else [])

    def _room_milli(self, node: Node, container: Container) -> dict[CpuSet, int]:
        """By pool, how much CPU may be requested there beside the requests of the others."""
        return {
            pool: len(pool) * 10 * self.options.full_percent
            - sum(
                node.containers[key].cpu_milli
                for key, grant in node.grants.items()
                if key != container.key and grant.cpus <= pool and key in node.containers
            )
            for pool in self._pools(node, container)
        }


def _name(pool: CpuSet) -> str:
    return numbered("CPU", pool)


ENTRY = Entry(TemplateOptions, TemplatePolicy)
