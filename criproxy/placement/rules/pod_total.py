"""Pod-level resources: containers without a size of their own share what the others leave of their pod's total.

One of them counts all of that rest, the others nothing, so that the containers of a pod never count more than its
total. Containers that request whole CPUs own them; the others share the exclusive CPUs that are left of the total.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from criproxy.errors import NotEnough, Refused
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.entries import entries_of, with_entries, without
from criproxy.model.grant import NO_CPUS, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.resources import MIN_REQUEST_MILLI
from criproxy.model.text.amounts import format_milli
from criproxy.model.text.reason import Reason
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement.alloc.cpus import take_cpus
from criproxy.placement.alloc.memory.memory import place_memory
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.exclusive import exclusive_of
from criproxy.placement.rules.quota import restored


@dataclass(frozen=True, slots=True)
class Group:
    """The containers of a pod that share its CPUs."""

    members: Sequence[Container]
    cpu_milli: int
    """What they share: the pod's total without the whole CPUs of other containers."""


def with_total(node: Node, key: str, cpu_total_milli: int) -> Node:
    """Return the node in which the pod *key* has another total; 0: the same."""
    pod = node.pods.get(key)
    if pod is None or cpu_total_milli in (0, pod.cpu_total_milli):
        return node
    return node.replace(pods=with_entries(node.pods, {key: replace(pod, cpu_total_milli=cpu_total_milli)}))


def counted(node: Node, key: str, *, arrives: bool = False) -> Node:
    """Return the node in which the containers of the pod *key* count no more than its total.

    If a container *arrives* (its create has the total), or if exclusive CPUs are shared, those that request exactly the
    total have no size of their own, unless all of them together fit into it.
    """
    pod = node.pods.get(key)
    alive = [each for each in node.containers_of(key) if each.state is not ContainerState.EXITED] if pod else []
    arrives = arrives or (key in node.pods_with_exclusive and _overlap(node, alive))
    bare = [each for each in alive if each.of_pod or (pod and arrives and _is_bare(pod, each, alive))]
    total = _total(pod, bare) if pod and bare else None
    if total is None or any(each.desired and each.desired.told for each in bare):
        return node
    names = {each.key for each in bare}
    rest = max(total - _requested(each for each in alive if each.key not in names), MIN_REQUEST_MILLI)
    first = max(bare, key=lambda each: each.cpu_milli).key
    amounts = {each.key: rest if each.key == first else MIN_REQUEST_MILLI for each in bare}
    changed = [each for each in bare if not each.of_pod or each.cpu_milli != amounts[each.key]]
    news = {each.key: replace(each, of_pod=True, cpu_milli=amounts[each.key]) for each in changed}
    return node.replace(containers=with_entries(node.containers, news)) if news else node


def _is_bare(pod: Pod, container: Container, alive: Sequence[Container]) -> bool:
    """Whether *container*, which comes with the total of its *pod*, has no size of its own, like others of *alive*.

    Other attempts of *container* show nothing about its size.
    """
    if pod.cap_milli is None or container.cpu_milli != pod.cap_milli:
        return False
    others = [each for each in alive if each.name != container.name]
    limits = {each.asked_quota for each in others if each.of_pod and each.asked_quota}
    return container.asked_quota in limits or _requested([*others, container]) > pod.cap_milli


def _requested(containers: Iterable[Container]) -> int:
    return sum(each.cpu_request_milli.low for each in containers)


def _total(pod: Pod, bare: Iterable[Container]) -> int | None:
    """Return the total of *pod*; if it is unknown, it is the limit of containers without a size in a Guaranteed pod."""
    if pod.cap_milli is not None or pod.qos is not QosClass.GUARANTEED:
        return pod.cap_milli
    return max((each.cpu_limit_milli or 0 for each in bare), default=0) or None


def group_of(node: Node, container: Container) -> Group | None:
    """Return the containers with which *container* shares CPUs of its pod, and which of these have not exited.

    None if it has its own request: if it requests whole CPUs or nothing, or if no container is without a size.
    """
    pod = node.pods.get(container.pod)
    beside = [each for each in node.containers_of(container.pod) if each.key != container.key]
    alive = [each for each in beside if each.state is not ContainerState.EXITED]
    found = _group(pod, [*alive, container]) if pod else None
    return found if found and container in found.members else None


def _group(pod: Pod, alive: Sequence[Container]) -> Group | None:
    bare = [each for each in alive if each.of_pod]
    total = _total(pod, bare)
    own = [each for each in alive if not each.of_pod and each.cpu_request_milli.low]
    if not bare or total is None or total - _requested(own) <= MIN_REQUEST_MILLI:
        return None
    whole = [each for each in own if each.cpu_milli >= 1000 and not each.cpu_milli % 1000]
    return Group([*bare, *(each for each in own if each not in whole)], total - _requested(whole))


def asks_milli(node: Node, container: Container) -> int:
    """Return the CPU that *container* requests, alone or together with those with which it shares, in milli."""
    group = group_of(node, container)
    return group.cpu_milli if group else container.cpu_milli


def recounted(
    node: Node, key: str, policy: Policy, *, arrives: bool = False, must: bool = False
) -> tuple[Node, tuple[Reason, ...]]:
    """Return the `counted` node, with the container that counts for its siblings placed again if its count changes.

    If the policy has no room for a larger count, the container keeps the former one.

    Raises:
        Refused: there is no room, and it *must* have it.
    """
    known, reasons = counted(node, key, arrives=arrives), tuple[Reason, ...]()
    for each in known.containers_of(key) if known is not node else ():
        before = node.containers[each.key].cpu_milli
        if each.key not in known.grants or not each.of_pod or each.cpu_milli == before:
            continue
        try:
            layout = policy.place(known, each)
        except Refused:
            if must:
                raise
            as_before = replace(each, cpu_milli=min(each.cpu_milli, before))
            known = known.replace(containers=with_entries(known.containers, {each.key: as_before}))
            continue  # the counts of others may have changed, too
        known = known.replace(grants=entries_of(known.grants, layout.grants), kept=layout.kept)
        reasons += layout.reasons_about(each.key)
    return known, reasons


@dataclass(frozen=True, slots=True)
class PodLevel:
    """Places containers of pods with pod-level resources."""

    policy: Policy
    beside: Callable[[Node, Container], Layout]
    """Returns the answer of *policy* with the kept CPUs of other pods taken."""

    def place(self, node: Node, container: Container, pod: Pod) -> Layout | None:
        """Return the layout with *container* on the CPUs of its *pod*; None if it does not share its siblings' CPUs.

        Raises:
            NotEnough: the pod needs more CPUs than it has, and there are none; or it shares some, and must not.
        """
        has_exclusive = container.pod in node.pods_with_exclusive
        if exclusive_of(self.policy) is None or not (container.of_pod or has_exclusive):
            return None
        if not (group := group_of(node, container)):
            return self._left(node, container) if has_exclusive else None
        members = [each for each in group.members if each.key != container.key and each.key in node.grants]
        exclusive = [each for each in members if node.grants[each.key].exclusive]
        if not exclusive:
            return self._first(node, container, group)
        is_among = container.key in node.grants and any(_overlap(node, [each, container]) for each in members)
        if not (wish := self._wish(node, container, group.cpu_milli)):
            return self._all_shared(node, container, exclusive) if is_among else None
        leader = max((node.grants[each.key] for each in exclusive), key=lambda grant: len(grant.exclusive))
        total = format_milli(group.cpu_milli)
        if container.key not in node.grants and len(leader.exclusive) >= len(wish.exclusive):
            reason = f"{container.title} shares the CPUs of its pod, which asks for {total} in total"
            return Layout(self._joined(node, container, leader, wish), (f"{reason}: {format_cpuset(leader.cpus)}",))
        return self._together(node, replace(container, cpu_milli=group.cpu_milli), leader, members)

    def _left(self, node: Node, container: Container) -> Layout | None:
        """Return the layout for *container*, which no longer shares CPUs with siblings; None if it did not."""
        siblings = _siblings(node, container)
        if container.key not in node.grants or not any(_overlap(node, [each, container]) for each in siblings):
            return None
        if container.of_pod:
            return self._all_shared(node, container, [each for each in siblings if each.of_pod])
        grant = node.grants[container.key]
        shared = replace(grant, cpus=node.shared_cpus or grant.cpus, exclusive=NO_CPUS, quota=restored(grant))
        return self.beside(node.replace(grants=with_entries(node.grants, {container.key: shared})), container)

    def _first(self, node: Node, container: Container, group: Group) -> Layout | None:
        """Return the layout in which *container* and its siblings get the exclusive CPUs of their pod; None if none.

        Raises:
            NotEnough: there are too few, and *container* counts for its siblings.
        """
        if container.qos is not QosClass.GUARANTEED or len(group.members) < 2:
            return None  # asking the policy about the empty machine takes long
        if not self._wish(node, container, group.cpu_milli):
            return None
        asked = replace(container, cpu_milli=group.cpu_milli)
        try:
            return self.beside(node, asked)
        except NotEnough:
            if container.of_pod and container.cpu_milli > MIN_REQUEST_MILLI:
                raise
            return None

    def _all_shared(self, node: Node, container: Container, exclusive: Sequence[Container]) -> Layout:
        """Return the layout in which *container* and its siblings have no *exclusive* CPUs any more."""
        layout = self.beside(node, container)
        for each in exclusive:
            if not each.stays:
                view = node.replace(grants=entries_of(node.grants, layout.grants), kept=layout.kept)
                layout = replace(self.beside(view, each), reasons=layout.reasons)
        return layout

    def gathered(self, node: Node, container: Container, layout: Layout) -> Layout:
        """Return the *layout* in which the siblings of *container* share the CPUs that it got for the whole pod."""
        grant = layout.grants.get(container.key)
        if not grant or not grant.exclusive or exclusive_of(self.policy) is None:
            return layout
        group = group_of(node, container)
        others = [each for each in group.members if each.key in layout.grants] if group else []
        siblings = [each for each in others if each.key != container.key and not layout.grants[each.key].exclusive]
        moved = [each for each in siblings if group and not each.stays and self._wish(node, each, group.cpu_milli)]
        if not moved:
            return layout
        return replace(layout, grants=_all_on(layout, grant, moved))

    def _wish(self, node: Node, container: Container, cpu_milli: int) -> Grant | None:
        """Return the grant of *container* with *cpu_milli* on the empty machine; None without exclusive CPUs."""
        key, asked = container.key, replace(container, cpu_milli=cpu_milli)
        alone = Node(node.topology, pods=node.pods, containers={key: asked})
        try:
            wish = self.policy.place(alone, asked).grants.get(key)
        except NotEnough:
            return None
        return wish if wish and wish.exclusive else None

    def _joined(self, node: Node, container: Container, leader: Grant, wish: Grant) -> "dict[str, Grant]":
        """Return the grants with *container* on the CPUs of its siblings, with memory near them if it is pinned."""
        options = options_of(self.policy)
        seen = options.within(node)
        grant = replace(leader, mems=seen.topology.mems, home_mems=frozenset(), quota=restored(None))
        grants = with_entries(node.grants, {container.key: grant})
        if wish.mems and wish.mems != seen.topology.mems:
            near, pessimistic = seen.topology.nodes_of(leader.exclusive), options.rules == "crirm"
            grants = entries_of(grants, place_memory(seen, grants, container, near, pessimistic=pessimistic).grants)
        return _unlifted(grants, node, container)

    def _together(self, node: Node, asked: Container, leader: Grant, siblings: Sequence[Container]) -> Layout:
        """Place them again as one container with the grant *leader*; memory stays where it is."""
        others = [each.key for each in siblings if node.grants[each.key].exclusive]
        old = node.grants.get(asked.key)
        seed = leader if old is None or not old.exclusive else old
        seed = seed.with_memory_of(old) if old else replace(seed, mems=node.topology.mems, home_mems=frozenset())
        view = node.replace(grants=with_entries(without(node.grants, others), {asked.key: seed}))
        layout = self.beside(view, asked)
        made = layout.grants.get(asked.key)
        if made is None or not made.exclusive:
            return layout
        back = with_entries(entries_of(view.grants, layout.grants), {key: node.grants[key] for key in others})
        moved = [each for each in siblings if not each.stays]
        return replace(layout, grants=_all_on(replace(layout, grants=back), made, moved))


def _siblings(node: Node, container: Container) -> list[Container]:
    """Return the other containers of its pod that have a grant and have not exited."""
    beside = (each for each in node.containers_of(container.pod) if each.key != container.key)
    return [each for each in beside if each.state is not ContainerState.EXITED and each.key in node.grants]


def total_shared_by(node: Node, container: Container) -> int | None:
    """Return the CPU that *container* shares with others of its pod, in milli; None if it has its own request."""
    pod, grant = node.pods.get(container.pod), node.grants.get(container.key)
    if pod is None or grant is None or not grant.exclusive:
        return None
    siblings = node.containers_of(container.pod)
    placed = [each for each in siblings if each.key in node.grants]
    if sum(1 for each in placed if node.grants[each.key].exclusive & grant.exclusive) < 2:
        return None
    if group := _group(pod, [each for each in siblings if each.state is not ContainerState.EXITED]):
        return group.cpu_milli
    return pod.cap_milli or max(each.cpu_milli for each in placed)


def _exclusive_of_all(node: Node, group: Sequence[Container]) -> CpuSet:
    """Return the exclusive CPUs of all containers of *group*, which all have grants."""
    return NO_CPUS.union(*(node.grants[each.key].exclusive for each in group))


def _overlap(node: Node, group: Sequence[Container]) -> bool:
    own = [node.grants[each.key].exclusive for each in group if each.key in node.grants]
    return len(frozenset().union(*own)) < sum(map(len, own))


def _cut(node: Node, pod: Pod, siblings: Sequence[Container]) -> Node:
    """Return the node in which *siblings* share no more than they and their *pod* request; without the policy."""
    owners = [each for each in siblings if node.grants[each.key].exclusive]
    group = [each for each in owners if each.of_pod or any(_overlap(node, [each, o]) for o in owners if o is not each)]
    if not group or any(each.stays for each in group):
        return node
    total, low = pod.cap_milli or max(each.cpu_milli for each in owners), _requested(owners)
    shared = _exclusive_of_all(node, group)
    own = _exclusive_of_all(node, owners) - shared
    room = max(total, low) // 1000 - len(own)
    if not 0 < room < len(shared):
        return node
    left = shared - take_cpus(node.topology, shared, room)
    old = {each.key: node.grants[each.key] for each in group}
    cut = {key: replace(grant, cpus=grant.cpus - left, exclusive=grant.exclusive - left) for key, grant in old.items()}
    if not all(grant.cpus for grant in cut.values()):
        return node
    return node.replace(grants=with_entries(node.grants, cut))


def _all_on(layout: Layout, grant: Grant, moved: Sequence[Container]) -> "dict[str, Grant]":
    """Return the grants of *layout* with all of *moved* on the CPUs of *grant*, and their quotas not lifted."""
    grants = layout.grants
    now = {
        each.key: replace(grant, quota=restored(grants[each.key])).with_memory_of(grants[each.key]) for each in moved
    }
    return with_entries(grants, now)


def _unlifted(grants: "dict[str, Grant]", node: Node, container: Container) -> "dict[str, Grant]":
    """Return the grants in which each container that shares CPUs with its siblings has its requested limit."""
    keys = [container.key, *(each.key for each in _siblings(node, container) if grants[each.key].exclusive)]
    lifted = {key: replace(grants[key], quota=restored(grants[key])) for key in keys if key in grants}
    changed = {key: grant for key, grant in lifted.items() if grant != grants[key]}
    return with_entries(grants, changed) if changed else grants


def apart_again(node: Node, gone: Container, policy: Policy) -> Node:
    """Return the node after *gone* ended or failed: its siblings may have had more CPUs because of it."""
    if gone.pod not in node.pods_with_exclusive or (pod := node.pods.get(gone.pod)) is None:
        return node
    siblings = _siblings(node, gone)
    if exclusive_of(policy) is None:
        return _cut(node, pod, siblings)
    group = _group(pod, siblings)
    for each in siblings:
        has_own = group is None or each not in group.members
        if has_own and not each.stays and len(node.grants[each.key].exclusive) * 1000 > each.cpu_milli:
            with suppress(Refused):  # it stays where it is
                layout = policy.place(node, each)
                node = node.replace(grants=entries_of(node.grants, layout.grants), kept=layout.kept)
    return node
