"""Pod-level resources: containers without a size of their own have that of their pod, and share its CPUs.

Such pods are recognised by their sizes: one container requests as much as the whole pod, and is not alone. The
exclusive CPUs of the pod are then at most its total, and all of its containers have the same CPUs.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from criproxy.alloc.cpus import take_cpus
from criproxy.alloc.memory import place_memory
from criproxy.engine.quota import restored
from criproxy.errors import NotEnough, Refused
from criproxy.model.amounts import format_milli
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.entries import entries_of, with_entries, without
from criproxy.model.grant import NO_CPUS, Grant, Layout
from criproxy.model.kept import Kept
from criproxy.model.node import Node
from criproxy.model.reason import Reason
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.policy.api import Policy
from criproxy.policy.exclusive import exclusive_of
from criproxy.policy.options import options_of


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
        if container.pod not in node.pods_with_exclusive or exclusive_of(self.policy) is None:
            return None
        siblings = _siblings(node, container)
        exclusive = [each for each in siblings if node.grants[each.key].exclusive]
        total = total_of_group(node, pod, [*siblings, container])
        if _resized(node, container) and not _overlap(node, [*siblings, container]):
            return None
        if not exclusive or total is None:
            return None
        # A container that already shares them would break up the group if it got its own CPUs.
        is_among = container.key in node.grants and any(_overlap(node, [each, container]) for each in siblings)
        if not (wish := self._wish(node, container, total, must_fit=is_among)):
            return None
        leader = max((node.grants[each.key] for each in exclusive), key=lambda grant: len(grant.exclusive))
        reason = f"{container.title} shares the CPUs of its pod, which asks for {format_milli(total)} in total"
        if container.key not in node.grants and len(leader.exclusive) >= len(wish.exclusive):
            return Layout(self._joined(node, container, leader, wish), (f"{reason}: {format_cpuset(leader.cpus)}",))
        return self._together(node, container.resized(replace(container.sizes, cpu_milli=total)), leader, siblings)

    def gathered(self, node: Node, container: Container, pod: Pod, layout: Layout) -> Layout:
        """Return the *layout* in which the siblings of *container* share the CPUs that it got for the whole pod."""
        grant = layout.grants.get(container.key)
        if not grant or not grant.exclusive or container.cpu_milli != pod.cap_milli or not exclusive_of(self.policy):
            return layout
        if _resized(node, container):
            return layout
        siblings = [each for each in _siblings(node, container) if not layout.grants[each.key].exclusive]
        total = total_of_group(node, pod, [*siblings, container])
        moved = [each for each in siblings if total and not each.stays and self._wish(node, each, total)]
        if not moved:
            return layout
        return replace(layout, grants=_all_on(layout, grant, moved))

    def _wish(self, node: Node, container: Container, total: int, *, must_fit: bool = False) -> Grant | None:
        """Return the grant of *container* with its pod's total on the empty machine; None without exclusive CPUs.

        Raises:
            NotEnough: the policy has too few CPUs for it; only with *must_fit*.
        """
        key, asked = container.key, container.resized(replace(container.sizes, cpu_milli=total))
        alone = Node(node.topology, pods=node.pods, containers={key: asked})
        try:
            wish = self.policy.place(alone, asked).grants.get(key)
        except NotEnough:
            if must_fit:
                raise
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


def _resized(node: Node, container: Container) -> bool:
    """Whether *container* was placed before: creates contain the total of the pod, resizes may not."""
    return container.key in node.grants and container.missed is None


def total_of_group(node: Node, pod: Pod, group: Sequence[Container]) -> int | None:
    """Return the CPU that *group*, running containers of *pod*, shares, in milli; None if each has its own.

    Containers that already share CPUs continue to do so while their sizes change one after the other.
    """
    total = pod.cap_milli
    low = sum(each.cpu_request_milli.low for each in group)
    whole = [each for each in group if each.cpu_milli == total]
    if total is not None and whole and low > total:
        return total
    if _overlap(node, group):
        return total or max(each.cpu_milli for each in group)
    return None


def total_shared_by(node: Node, container: Container) -> int | None:
    """Return the CPU that *container* shares with others of its pod, in milli; None if it has its own request."""
    pod, grant = node.pods.get(container.pod), node.grants.get(container.key)
    if pod is None or grant is None or not grant.exclusive:
        return None
    beside = [other for other in node.containers_of(container.pod) if other.key in node.grants]
    together = [other for other in beside if node.grants[other.key].exclusive & grant.exclusive]
    return total_of_group(node, pod, together) if len(together) > 1 else None


def _exclusive_of_all(node: Node, group: Sequence[Container]) -> CpuSet:
    """Return the exclusive CPUs of all containers of *group*, which all have grants."""
    return NO_CPUS.union(*(node.grants[each.key].exclusive for each in group))


def _overlap(node: Node, group: Sequence[Container]) -> bool:
    own = [node.grants[each.key].exclusive for each in group if each.key in node.grants]
    return len(frozenset().union(*own)) < sum(map(len, own))


def _cut(node: Node, pod: Pod, siblings: Sequence[Container]) -> Node:
    """Return the node in which *siblings* share no more than they and their *pod* request; without the policy."""
    owners = [each for each in siblings if node.grants[each.key].exclusive]
    group = [each for each in owners if any(_overlap(node, [each, other]) for other in owners if other is not each)]
    total, low = total_of_group(node, pod, owners), sum(each.cpu_request_milli.low for each in owners)
    if not group or total is None or any(each.stays for each in group):
        return node
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


def resized_together(node: Node, pod: Pod, policy: Policy) -> Layout | None:
    """Return the layout for the new total of *pod*, if its containers share CPUs; None if none moves."""
    if pod.key not in node.pods_with_exclusive:
        return None
    alive = [each for each in node.containers_of(pod.key) if each.state is not ContainerState.EXITED]
    group = [each for each in alive if each.key in node.grants]
    if not _overlap(node, group):
        return None
    exclusive = [each for each in group if node.grants[each.key].exclusive]
    leader = max(exclusive, key=lambda each: each.cpu_milli)
    try:
        layout = policy.place(node, leader)
    except Refused:
        return None
    return replace(layout, reasons=layout.reasons_about(leader.key))


def apart(node: Node, pod: Pod, policy: Policy) -> Layout | None:
    """Return the layout in which containers that share CPUs of *pod* have their own; None if these exceed its total.

    The largest containers keep as many of the CPUs as possible, and no memory moves.
    """
    alive = [each for each in node.containers_of(pod.key) if each.state is not ContainerState.EXITED]
    group = [each for each in alive if each.key in node.grants]
    low, total = sum(each.cpu_request_milli.low for each in group), pod.cap_milli
    if total is None or low > total or not _overlap(node, group) or any(each.stays for each in group):
        return None
    together = [each for each in group if node.grants[each.key].exclusive]
    together.sort(key=lambda each: -each.cpu_milli)
    kept = node.kept.get(pod.uid, Kept())
    view, reasons = node.replace(grants=with_entries(node.grants, _parts(node, kept, together))), tuple[Reason, ...]()
    try:
        for each in together:
            layout = policy.place(view, each)
            view = view.replace(grants=entries_of(view.grants, layout.grants), kept=layout.kept)
            reasons += layout.reasons_about(each.key)
    except Refused:
        return None
    return Layout(view.grants, reasons, view.kept)


def _parts(node: Node, by_name: Kept, together: Sequence[Container]) -> "dict[str, Grant]":
    """Divide the CPUs that the containers *together* share among them; one that gets none has shared CPUs."""
    left, parts = _exclusive_of_all(node, together), dict[str, Grant]()
    for each in together:
        old, kept = node.grants[each.key], by_name.of(each.name)
        own, count = left & old.exclusive, each.cpu_milli // 1000
        # Prefer its kept CPUs: otherwise they would stay kept in addition to the others that it gets.
        mine = take_cpus(node.topology, own & kept if len(own & kept) >= count else own, min(count, len(own)))
        parts[each.key] = replace(old, cpus=mine or node.shared_cpus, exclusive=mine)
        left -= mine
    return parts


def apart_again(node: Node, gone: Container, policy: Policy) -> Node:
    """Return the node after *gone* ended or failed: its siblings may have had more CPUs because of it."""
    if gone.pod not in node.pods_with_exclusive or (pod := node.pods.get(gone.pod)) is None:
        return node
    if exclusive_of(policy) is None:
        return _cut(node, pod, _siblings(node, gone))
    if moved := apart(node, pod, policy):
        return node.replace(grants=entries_of(node.grants, moved.grants), kept=moved.kept)
    siblings = _siblings(node, gone)
    if total_of_group(node, pod, siblings) is not None:
        return node
    for each in siblings:
        if not each.stays and len(node.grants[each.key].exclusive) * 1000 > each.cpu_milli:
            with suppress(Refused):  # it stays where it is
                layout = policy.place(node, each)
                node = node.replace(grants=entries_of(node.grants, layout.grants), kept=layout.kept)
    return node
