"""Which containers would have to leave so that a refused one fits: the shortest list that is found in time.

Every attempt is a step of the engine on a copy of the node, so the answer is right for every policy. The number of
steps is limited, with a lower limit on nodes with more containers, where each step takes longer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import comb

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node, without
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerGone
from criproxy.placement.policies.api import Policy, candidates_of
from criproxy.placement.rules.kept import with_other_kept

MOST, LEAST, TIMES_CONTAINERS = 2_000, 100, 40_000
"""Limits of the steps of one search, which keep it below 0.25 s of CPU time."""
GENTLE = (QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED)
"""Of lists of the same length, the one whose containers the kubelet would evict first is chosen."""


@dataclass(frozen=True, slots=True)
class Leavers:
    """The containers that would have to leave."""

    containers: tuple[str, ...] = ()
    """Their names, as `Container.title`; empty if no list was found."""
    shortest: bool = False
    """Whether it is certain that there is no shorter list or, if *containers* is empty, no list."""
    steps: int = 0
    """The number of steps of the search."""
    omitted: int = 0
    """How many more names there were."""

    def first(self, count: int) -> "Leavers":
        """Return a copy with at most *count* names."""
        kept = self.containers[:count]
        return replace(self, containers=kept, omitted=self.omitted + len(self.containers) - len(kept))


def steps_for(containers: int) -> int:
    """Return how many steps a search may take on a node with *containers* containers."""
    return max(LEAST, min(MOST, TIMES_CONTAINERS // max(1, containers)))


def leavers(node: Node, container: Container, policy: Policy, steps: int | None = None) -> Leavers:
    """Find containers that would have to leave *node* so that *policy* places *container*, which it has just refused.

    Other containers of its own pod are not considered: they start and end with it.

    Args:
        node: the node including the container, as `Policy.place` received it.
        container: the container that was refused.
        policy: the policy, which is asked repeatedly.
        steps: the limit of the steps; None: as `steps_for`.
    """
    search = _Search(policy, container, steps_for(len(node.containers)) if steps is None else steps)
    try:
        found, shortest = search.run(node)
    except _OutOfStepsError:
        found, shortest = (), False
    return Leavers(tuple(each.title for each in found), shortest, search.taken)


@dataclass(frozen=True, slots=True)
class _Leaver:
    """A container that could leave, or those of a pod that have ended and whose CPUs are kept."""

    key: str
    title: str
    qos: QosClass
    size: tuple[int, int]
    """The number of its exclusive CPUs, and its CPU request."""
    cpus: CpuSet
    pool: str = ""
    kept_for: str = ""
    """The UID of the pod if its CPUs are kept."""


class _OutOfStepsError(Exception):
    """The search has used all of its steps."""


class _Search:
    """One search, and the number of its steps."""

    def __init__(self, policy: Policy, container: Container, steps: int) -> None:
        self.taken = 0
        self._policy = policy
        self._container = container
        self._steps = steps

    def run(self, node: Node) -> tuple[Sequence[_Leaver], bool]:
        """Return the containers that would have to leave, and whether there is no shorter list."""
        all_ = list(_may_leave(node, self._container.pod))
        gone = {each.key for each in all_}
        left = node.replace(containers=without(node.containers, gone), grants=without(node.grants, gone), kept={})
        if not self._fits(left.replace(applied=without(node.applied, gone))):
            return (), True
        gentle = sorted(all_, key=lambda each: (GENTLE.index(each.qos), each.size, each.key))
        size = 1
        # Half of the steps are for a faster search, whose list may be longer.
        while size < len(all_) and self.taken + _cost(len(all_), size) <= self._steps // 2:
            if found := self._of_size(node, gentle, size):
                return found, True
            size += 1
        pools = self._compared(node)
        large = sorted(
            all_, key=lambda each: (*self._is_aside(node, each, pools), *map(int.__neg__, each.size), each.key)
        )
        enough = self._fewer(node, self._one_by_one(node, large))
        return enough, bool(enough) and len(enough) <= size

    def _of_size(self, node: Node, leavers: Sequence[_Leaver], size: int) -> tuple[_Leaver, ...]:
        """Return the first list of *size* of *leavers* whose removal makes room; empty if there is none."""
        for place, each in enumerate(leavers[: len(leavers) - size + 1]):
            rest = self._without(node, each)
            if size == 1:
                if self._fits(rest):
                    return (each,)
            elif more := self._of_size(rest, leavers[place + 1 :], size - 1):
                return (each, *more)
        return ()

    def _one_by_one(self, node: Node, leavers: Sequence[_Leaver]) -> list[_Leaver]:
        """So many of *leavers*, in their order, as make room when they leave; empty if all of them do not."""
        for count, each in enumerate(leavers, 1):
            node = self._without(node, each)
            if self._fits(node):
                return list(leavers[:count])
        return []

    def _fewer(self, node: Node, leavers: list[_Leaver]) -> list[_Leaver]:
        """Return *leavers* without those that may stay, as far as the steps suffice."""
        try:
            for one in leavers[:-1]:
                rest = [each for each in leavers if each != one]
                if rest and self._fits(reduce(self._without, rest, node)):
                    leavers = rest
        except _OutOfStepsError:
            pass
        return leavers

    def _compared(self, node: Node) -> frozenset[str]:
        """Return the names of the pools that the policy compares; empty if it does not report them."""
        candidates = candidates_of(self._policy, node, self._container)
        return frozenset(row.name for row in candidates.rows) if candidates else frozenset()

    def _is_aside(self, node: Node, leaver: _Leaver, pools: frozenset[str]) -> tuple[bool, bool]:
        """Whether a container is in none of *pools*, and whether it is far from the cards of the refused one."""
        nodes = NO_CPUS.union(*self._container.hints)
        far = bool(nodes) and nodes.isdisjoint(node.topology.nodes_of(leaver.cpus))
        return bool(leaver.pool) and leaver.pool not in pools, far

    def _without(self, node: Node, leaver: _Leaver) -> Node:
        self._spend()
        if leaver.kept_for:
            return with_other_kept(node, without(node.kept, (leaver.kept_for,)), self._policy)
        after = step(node, ContainerGone(leaver.key), self._policy).node
        return after if after.kept == node.kept else after.replace(kept=node.kept)  # its pod leaves, too

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
    """Return the number of steps to try all lists of *size* out of *count* containers."""
    return sum(comb(count, each) for each in range(1, size + 1)) + comb(count, size)


def _may_leave(node: Node, pod: str) -> Iterator[_Leaver]:
    """Yield the containers of others than *pod* that have a grant, or are watched and so block exclusive CPUs."""
    for key in {*node.grants, *(key for key in node.applied if node.is_watched(key))}:
        each, grant = node.containers.get(key), node.grants.get(key)
        if each and each.pod != pod:
            cpus, own = (grant.cpus, len(grant.exclusive)) if grant else (node.applied[key].cpus, 0)
            yield _Leaver(key, each.title, each.qos, (own, each.cpu_milli), cpus, grant.pool if grant else "")
    for uid, kept in node.kept.items():
        key = f"kept/{uid}"  # no runtime's id or reservation has a slash
        owner = next((pod for pod in node.pods.values() if pod.uid == uid), Pod(key=key))
        title = "/".join(filter(None, (owner.namespace, owner.name, f"(kept {numbered('CPU', kept.cpus)})")))
        yield _Leaver(key, title, owner.qos, (len(kept.cpus), 0), kept.cpus, kept_for=uid)
