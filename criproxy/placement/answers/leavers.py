"""Which containers would have to leave so that a refused one fits: the shortest list that is found in time.

Every attempt is a step of the engine on a copy of the node, so the answer is right for every policy. The number of
steps is limited, with a lower limit on nodes with more containers, where each step takes longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerGone
from criproxy.placement.policies.api import Policy, candidates_of
from criproxy.placement.rules.kept import with_other_kept

MOST, LEAST, TIMES_CONTAINERS = 2_000, 100, 40_000
"""Limits of the steps of one search, which keep it below 0.25 s of CPU time."""
_KEPT = "kept/"
"""Before the UID of a pod, in place of the key of a container; no runtime's id or reservation has a slash."""
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
    return Leavers(tuple(_title(node, key) for key in found), shortest, search.taken)


class _OutOfStepsError(Exception):
    """The search has used all of its steps."""


class _Search:
    """One search, and the number of its steps."""

    def __init__(self, policy: Policy, container: Container, steps: int) -> None:
        self.taken = 0
        self._policy = policy
        self._container = container
        self._steps = steps

    def run(self, node: Node) -> tuple[Sequence[str], bool]:
        """Return the keys of the containers that would have to leave, and whether there is no shorter list."""
        keys = self._may_leave(node)
        if not self._fits(_left_to(node, node.containers.keys() - set(keys))):
            return (), True
        gentle = sorted(keys, key=lambda key: (GENTLE.index(_qos(node, key)), _size(node, key), key))
        size = 1
        # Half of the steps are for a faster search, whose list may be longer.
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
        """Return the containers of other pods that have a grant, or are watched and so block exclusive CPUs.

        Also those that have ended and whose CPUs are kept.
        """
        containers = node.containers
        there = {*node.grants, *(key for key in node.applied if node.is_watched(key))}
        others = [key for key in there if key in containers and containers[key].pod != self._container.pod]
        return others + [f"{_KEPT}{uid}" for uid in node.kept]

    def _of_size(self, node: Node, keys: Sequence[str], size: int) -> tuple[str, ...]:
        """Return the first list of *size* of *keys* whose removal makes room; empty if there is none."""
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
        """Return *keys* without those that may stay, as far as the steps suffice."""
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
        """Return the names of the pools that the policy compares; empty if it does not report them."""
        candidates = candidates_of(self._policy, node, self._container)
        return frozenset(row.name for row in candidates.rows) if candidates else frozenset()

    def _is_aside(self, node: Node, key: str, pools: frozenset[str]) -> tuple[bool, bool]:
        """Whether a container is in none of *pools*, and whether it is far from the cards of the refused one."""
        nodes, grant = NO_CPUS.union(*self._container.hints), node.grants.get(key)
        far = bool(nodes) and nodes.isdisjoint(node.topology.nodes_of(_cpus(node, key)))
        return grant is not None and bool(grant.pool) and grant.pool not in pools, far

    def _without(self, node: Node, key: str) -> Node:
        self._spend()
        if uid := _pod_of_kept(node, key):
            kept = {other: cpus for other, cpus in node.kept.items() if other != uid}
            return with_other_kept(node, kept, self._policy)
        after = step(node, ContainerGone(key), self._policy).node
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


def _left_to(node: Node, keys: set[str]) -> Node:
    """Return *node* with only the containers *keys*."""
    return node.replace(
        containers={key: node.containers[key] for key in node.containers if key in keys},
        grants={key: grant for key, grant in node.grants.items() if key in keys or key not in node.containers},
        applied={key: applied for key, applied in node.applied.items() if key in keys},
        kept={},
    )


def _pod_of_kept(node: Node, key: str) -> str:
    """Return the UID of the pod whose ended containers *key* stands for; empty for a container."""
    return "" if key in node.containers else key.removeprefix(_KEPT)


def _pod(node: Node, uid: str) -> Pod:
    return next((pod for pod in node.pods.values() if pod.uid == uid), Pod(key=f"{_KEPT}{uid}"))


def _title(node: Node, key: str) -> str:
    if not (uid := _pod_of_kept(node, key)):
        return node.containers[key].title
    pod, cpus = _pod(node, uid), numbered("CPU", node.kept[uid].cpus)
    return "/".join(filter(None, (pod.namespace, pod.name, f"(kept {cpus})")))


def _qos(node: Node, key: str) -> QosClass:
    uid = _pod_of_kept(node, key)
    return _pod(node, uid).qos if uid else node.containers[key].qos


def _size(node: Node, key: str) -> tuple[int, int]:
    """Return how much a container has: the number of its exclusive CPUs, and its CPU request."""
    if uid := _pod_of_kept(node, key):
        return len(node.kept[uid].cpus), 0
    grant = node.grants.get(key)
    return len(grant.exclusive) if grant else 0, node.containers[key].cpu_milli


def _cpus(node: Node, key: str) -> CpuSet:
    if uid := _pod_of_kept(node, key):
        return node.kept[uid].cpus
    grant, applied = node.grants.get(key), node.applied.get(key)
    return grant.cpus if grant else applied.cpus if applied else NO_CPUS
