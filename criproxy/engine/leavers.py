"""Which containers would have to leave so that a refused one fits: the shortest list that is found in time.

Every try is a step of the engine on a node of its own, so the answer is right for every policy. How many there may be
is counted, and fewer on nodes with more containers, where each takes longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

from criproxy.engine.events import ContainerGone
from criproxy.engine.step import step
from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.policy.api import Policy, candidates_of

MOST, LEAST, TIMES_CONTAINERS = 2_000, 100, 40_000
"""Steps that one search may take: so many as keep it below a quarter of a second of CPU time."""
GENTLE = (QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED)
"""Of lists of the same length, the one is taken whose containers the kubelet evicts first."""


@dataclass(frozen=True, slots=True)
class Leavers:
    """The containers that would have to leave."""

    containers: tuple[str, ...] = ()
    """Their names, as `Container.title`; empty where no list was found."""
    shortest: bool = False
    """Whether there is surely no shorter list; where *containers* is empty, whether there is surely none at all."""
    steps: int = 0
    """Taken to find out."""
    omitted: int = 0
    """How many more names there were."""

    def first(self, count: int) -> "Leavers":
        """The same with at most *count* names."""
        kept = self.containers[:count]
        return replace(self, containers=kept, omitted=self.omitted + len(self.containers) - len(kept))


def steps_for(containers: int) -> int:
    """How many steps a search may take on a node with so many containers."""
    return max(LEAST, min(MOST, TIMES_CONTAINERS // max(1, containers)))


def leavers(node: Node, container: Container, policy: Policy, steps: int | None = None) -> Leavers:
    """Who would have to leave *node* so that *policy* places *container*, which it has just refused.

    Others of its own pod do not count: they come and go with it.

    Args:
        node: with the container in it, as `Policy.place` got it.
        container: who was refused.
        policy: asked again and again.
        steps: how many steps the search may take at most; None: as many as `steps_for` says.
    """
    search = _Search(policy, container, steps_for(len(node.containers)) if steps is None else steps)
    try:
        found, shortest = search.run(node)
    except _OutOfStepsError:
        found, shortest = (), False
    return Leavers(tuple(node.containers[key].title for key in found), shortest, search.taken)


class _OutOfStepsError(Exception):
    """The search has taken as many steps as it may."""


class _Search:
    """One search, and the steps that it has taken."""

    def __init__(self, policy: Policy, container: Container, steps: int) -> None:
        self.taken = 0
        self._policy = policy
        self._container = container
        self._steps = steps

    def run(self, node: Node) -> tuple[Sequence[str], bool]:
        """The keys of those who would have to leave, and whether there is no shorter list."""
        keys = self._may_leave(node)
        if not self._fits(_left_to(node, node.containers.keys() - set(keys))):
            return (), True
        gentle = sorted(keys, key=lambda key: (GENTLE.index(node.containers[key].qos), _size(node, key), key))
        size = 1
        # Half of the steps are for the list that is found faster and may be longer.
        while size < len(keys) and self.taken + _cost(len(keys), size) <= self._steps // 2:
            if found := self._of_size(node, gentle, size):
                return found, True
            size += 1
        pools = self._compared(node)
        large = sorted(
            keys, key=lambda key: (*self._is_aside(node, key, pools), *map(int.__neg__, _size(node, key)), key)
        )
        enough = self._fewer(node, self._one_by_one(node, large))
        return enough, bool(enough) and len(enough) <= size

    def _may_leave(self, node: Node) -> list[str]:
        """Those of other pods that have a place, or are watched on CPUs that cannot become exclusive meanwhile."""
        containers = node.containers
        there = {*node.grants, *(key for key in node.applied if node.is_watched(key))}
        return [key for key in there if key in containers and containers[key].pod != self._container.pod]

    def _of_size(self, node: Node, keys: Sequence[str], size: int) -> tuple[str, ...]:
        """*size* of *keys* whose leaving makes room, the first such list; empty if there is none."""
        for place, key in enumerate(keys[: len(keys) - size + 1]):
            without = self._without(node, key)
            if size == 1:
                if self._fits(without):
                    return (key,)
            elif more := self._of_size(without, keys[place + 1 :], size - 1):
                return (key, *more)
        return ()

    def _one_by_one(self, node: Node, keys: Sequence[str]) -> list[str]:
        """So many of *keys*, in their order, as make room when they leave; empty if all of them do not."""
        for count, key in enumerate(keys, 1):
            node = self._without(node, key)
            if self._fits(node):
                return list(keys[:count])
        return []

    def _fewer(self, node: Node, keys: list[str]) -> list[str]:
        """*keys* without those that may stay, as far as the steps suffice to find out."""
        try:
            for key in keys[:-1]:
                if len(keys) > 1 and self._fits_without(node, rest := [other for other in keys if other != key]):
                    keys = rest
        except _OutOfStepsError:
            pass
        return keys

    def _fits_without(self, node: Node, keys: Sequence[str]) -> bool:
        for key in keys:
            node = self._without(node, key)
        return self._fits(node)

    def _compared(self, node: Node) -> frozenset[str]:
        """The names of the pools among which the policy looks for a place; empty where it does not tell."""
        candidates = candidates_of(self._policy, node, self._container)
        return frozenset(row.name for row in candidates.rows) if candidates else frozenset()

    def _is_aside(self, node: Node, key: str, pools: frozenset[str]) -> tuple[bool, bool]:
        """Whether a container is in other pools than those, or elsewhere than the one that was refused wants to be."""
        nodes, grant = NO_CPUS.union(*self._container.hints), node.grants.get(key)
        far = bool(nodes) and nodes.isdisjoint(node.topology.nodes_of(_cpus(node, key)))
        return grant is not None and bool(grant.pool) and grant.pool not in pools, far

    def _without(self, node: Node, key: str) -> Node:
        self._spend()
        after = step(node, ContainerGone(key), self._policy).node
        return after.replace(kept={}) if after.kept else after  # who leaves for good leaves with its pod

    def _fits(self, node: Node) -> bool:
        self._spend()
        try:
            self._policy.place(node, self._container)
        except Refused:
            return False
        return True

    def _spend(self) -> None:
        if self.taken >= self._steps:
            raise _OutOfStepsError
        self.taken += 1


def _cost(count: int, size: int) -> int:
    """The steps to try all lists of *size* out of *count* containers."""
    return sum(comb(count, each) for each in range(1, size + 1)) + comb(count, size)


def _left_to(node: Node, keys: set[str]) -> Node:
    """*node* with the containers *keys* alone."""
    return node.replace(
        containers={key: node.containers[key] for key in node.containers if key in keys},
        grants={key: grant for key, grant in node.grants.items() if key in keys or key not in node.containers},
        applied={key: applied for key, applied in node.applied.items() if key in keys},
    )


def _size(node: Node, key: str) -> tuple[int, int]:
    """How much a container holds: CPUs of its own, and what it asks for."""
    grant = node.grants.get(key)
    return len(grant.exclusive) if grant else 0, node.containers[key].cpu_milli


def _cpus(node: Node, key: str) -> CpuSet:
    grant, applied = node.grants.get(key), node.applied.get(key)
    return grant.cpus if grant else applied.cpus if applied else NO_CPUS
