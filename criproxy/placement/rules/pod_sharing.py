"""Places containers on CPUs that they share with others of their pod; see `pod_total`.

Containers that request whole CPUs own them; the others share the exclusive CPUs that are left of the pod's total.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS, Grant, Reason
from criproxy.model.node import Node, without
from criproxy.model.resources import MIN_REQUEST_MILLI
from criproxy.model.text.amounts import format_milli
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement.alloc.memory.place_memory import place_memory
from criproxy.placement.options.policy_options import exclusive_of, options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.ask import Placed, ask, shown
from criproxy.placement.rules.attributes.quota import restored
from criproxy.placement.rules.kept import NOTHING
from criproxy.placement.rules.pod_total import Group, group_of, overlap


def place_in_pod(node: Node, container: Container, policy: Policy) -> Placed | None:
    """Return the node with *container* on the CPUs of its pod; None if it does not share its siblings' CPUs.

    Raises:
        NotEnough: the pod needs more CPUs than it has, and there are none; or it shares some, and must not.
    """
    has_exclusive = container.pod in node.pods_with_exclusive
    if not (container.of_pod or has_exclusive) or exclusive_of(policy) is None:
        return None
    if not (group := group_of(node, container)):
        return _apart(node, container, policy) if has_exclusive else None
    members = [each for each in group.members if each.key != container.key and each.key in node.grants]
    exclusive = [each for each in members if node.grants[each.key].exclusive]
    if not exclusive:
        return _first(node, container, group, policy)
    is_among = container.key in node.grants and any(overlap(node, [each, container]) for each in members)
    if not (wish := _wish(node, container, group.cpu_milli, policy)):
        return _all_shared(node, container, exclusive, policy) if is_among else None
    leader = max((node.grants[each.key] for each in exclusive), key=lambda grant: len(grant.exclusive))
    if container.key in node.grants or len(leader.exclusive) < len(wish.exclusive):
        return _together(node, replace(container, cpu_milli=group.cpu_milli), leader, members, policy)
    total = format_milli(group.cpu_milli)
    reason = f"{container.title} shares the CPUs of its pod, which asks for {total} in total"
    reasons = (Reason(container.key, f"{reason}: {format_cpuset(leader.cpus)}"),)
    return Placed(node.replace(grants=_joined(node, container, leader, wish, policy)), reasons)


def gathered(placed: Placed, container: Container, policy: Policy) -> Placed:
    """Return the node in which the siblings of *container* share the CPUs that it got for the whole pod."""
    node = placed.node
    grant = node.grants.get(container.key)
    if not grant or not grant.exclusive or exclusive_of(policy) is None or not (group := group_of(node, container)):
        return placed
    others = [each for each in group.members if each.key != container.key and each.key in node.grants]
    siblings = [each for each in others if not each.stays and not node.grants[each.key].exclusive]
    moved = [each for each in siblings if _wish(node, each, group.cpu_milli, policy)]
    return replace(placed, node=_all_on(node, grant, moved)) if moved else placed


def _beside(node: Node, container: Container, policy: Policy) -> Placed:
    """Return the policy's answer with all kept CPUs taken, except those of the container's own pod."""
    pod = node.pods.get(container.pod)
    own = node.kept.get(pod.uid, NOTHING).cpus if pod else NO_CPUS
    return replace(ask(node, container, policy, shown(node, own)), shown=None)


def _apart(node: Node, container: Container, policy: Policy) -> Placed | None:
    """Return the node with *container*, which no longer shares CPUs with siblings, elsewhere; None if it did not."""
    siblings = siblings_of(node, container)
    if container.key not in node.grants or not any(overlap(node, [each, container]) for each in siblings):
        return None
    if container.of_pod:
        return _all_shared(node, container, [each for each in siblings if each.of_pod], policy)
    grant = node.grants[container.key]
    shared = replace(grant, cpus=node.shared_cpus or grant.cpus, exclusive=NO_CPUS, quota=restored(grant))
    return _beside(node.replace(grants={**node.grants, container.key: shared}), container, policy)


def _first(node: Node, container: Container, group: Group, policy: Policy) -> Placed | None:
    """Return the node in which *container* and its siblings get the exclusive CPUs of their pod; None if none.

    Raises:
        NotEnough: there are too few, and *container* counts for its siblings.
    """
    if container.qos is not QosClass.GUARANTEED or len(group.members) < 2:
        return None  # asking the policy about the empty machine takes long
    if not _wish(node, container, group.cpu_milli, policy):
        return None
    try:
        return _beside(node, replace(container, cpu_milli=group.cpu_milli), policy)
    except NotEnough:
        if container.of_pod and container.cpu_milli > MIN_REQUEST_MILLI:
            raise
        return None


def _all_shared(node: Node, container: Container, exclusive: Sequence[Container], policy: Policy) -> Placed:
    """Return the node in which *container* and its siblings have no *exclusive* CPUs any more."""
    placed = _beside(node, container, policy)
    for each in exclusive:
        if not each.stays:
            placed = replace(placed, node=_beside(placed.node, each, policy).node)
    return placed


def _wish(node: Node, container: Container, cpu_milli: int, policy: Policy) -> Grant | None:
    """Return the grant of *container* with *cpu_milli* on the empty machine; None without exclusive CPUs."""
    asked = replace(container, cpu_milli=cpu_milli)
    alone = Node(node.topology, pods=node.pods, containers={container.key: asked})
    try:
        wish = policy.place(alone, asked).grants.get(container.key)
    except NotEnough:
        return None
    return wish if wish and wish.exclusive else None


def _joined(node: Node, container: Container, leader: Grant, wish: Grant, policy: Policy) -> Mapping[str, Grant]:
    """Return the grants with *container* on the CPUs of its siblings, with memory near them if it is pinned."""
    options = options_of(policy)
    seen = options.within(node)
    grant = replace(leader, mems=seen.topology.mems, home_mems=frozenset(), quota=restored(None))
    grants = {**node.grants, container.key: grant}
    if wish.mems and wish.mems != seen.topology.mems:
        near, pessimistic = seen.topology.nodes_of(leader.exclusive), options.rules == "crirm"
        grants |= place_memory(seen, {container.key: grant}, container, near, pessimistic=pessimistic).grants
    owners = (each.key for each in siblings_of(node, container) if grants[each.key].exclusive)
    return grants | {key: replace(grants[key], quota=restored(grants[key])) for key in (container.key, *owners)}


def _together(node: Node, asked: Container, leader: Grant, siblings: Sequence[Container], policy: Policy) -> Placed:
    """Place them again as one container with the grant *leader*; memory stays where it is."""
    others = [each.key for each in siblings if node.grants[each.key].exclusive]
    old = node.grants.get(asked.key)
    seed = leader if old is None or not old.exclusive else old
    seed = seed.with_memory_of(old) if old else replace(seed, mems=node.topology.mems, home_mems=frozenset())
    placed = _beside(node.replace(grants={**without(node.grants, others), asked.key: seed}), asked, policy)
    made = placed.node.grants.get(asked.key)
    if made is None or not made.exclusive:
        return placed
    back = placed.node.replace(grants={**placed.node.grants, **{key: node.grants[key] for key in others}})
    return replace(placed, node=_all_on(back, made, [each for each in siblings if not each.stays]))


def _all_on(node: Node, grant: Grant, moved: Sequence[Container]) -> Node:
    """Return the node with all of *moved* on the CPUs of *grant*, and their quotas not lifted."""
    old = {each.key: node.grants[each.key] for each in moved}
    now = {key: replace(grant, quota=restored(had)).with_memory_of(had) for key, had in old.items()}
    return node.replace(grants={**node.grants, **now})


def siblings_of(node: Node, container: Container) -> list[Container]:
    """Return the other containers of its pod that have a grant and have not exited."""
    beside = (each for each in node.containers_of(container.pod) if each.key != container.key)
    return [each for each in beside if each.state is not ContainerState.EXITED and each.key in node.grants]
