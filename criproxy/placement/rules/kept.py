"""Kept CPUs: which stay with a pod when its containers end, when they are released, and how its containers get them.

A container that crashes must get its CPUs again: otherwise one that waits for room would take them meanwhile. Together
with the exclusive CPUs of its running containers, a pod never keeps more than its total. Kept CPUs are taken for all
other pods, and free for their own pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS, Kept, Reason
from criproxy.model.node import Node
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.placement.alloc.cpus import take_cpus
from criproxy.placement.options.policy_options import exclusive_of, options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.ask import Placed, ask, reshared, shown
from criproxy.placement.rules.transitions import has_later_attempt

NOTHING = Kept()
_NAMED = 3
"""The number of pods that a sentence names."""


def keeps(policy: Policy) -> bool:
    """Whether *policy* keeps the CPUs of ended containers for their pod."""
    options = exclusive_of(policy)
    return options is not None and options.keep == "pod"


def owned_by(node: Node, uid: str) -> CpuSet:
    """Return the exclusive CPUs of the containers of the pod *uid*, including those in an older sandbox."""
    return NO_CPUS.union(*(node.grants[key].exclusive for key in _holders(node, uid)))


def newest_sandbox(node: Node, uid: str) -> Pod | None:
    """Return the newest sandbox of the pod *uid* that is not stopped."""
    living = (pod for pod in node.pods.values() if pod.uid == uid and not pod.stopped)
    return max(living, key=lambda pod: pod.attempt, default=None)


def pod_title(node: Node, uid: str) -> str:
    """Return NAMESPACE/POD of the pod *uid*."""
    return next((pod.title for pod in node.pods.values() if pod.uid == uid), uid)


def kept_text(node: Node, uid: str) -> str:
    """Return a sentence about CPUs kept for pods other than *uid*, for refusals; empty if there are none."""
    others = [(other, kept.cpus - node.owned_cpus) for other, kept in sorted(node.kept.items()) if other != uid]
    texts = [
        f"{numbered('CPU', cpus)} {are(len(cpus))} kept for {pod_title(node, other)}" for other, cpus in others if cpus
    ]
    more = f" and more for {len(texts) - _NAMED} other pods" if len(texts) > _NAMED else ""
    return f"{', '.join(texts[:_NAMED])}{more}, whose containers have ended and may come back" if texts else ""


def by_name(node: Node, uid: str) -> dict[str, CpuSet]:
    """Return the exclusive CPUs of the pod *uid* by container name, for its next sandbox."""
    alive = {node.containers[key].name: node.grants[key].exclusive for key in _holders(node, uid)}
    return {**node.kept.get(uid, NOTHING).by_name, **alive}


def _holders(node: Node, uid: str) -> list[str]:
    sandboxes = {key for key, pod in node.pods.items() if pod.uid == uid} & node.pods_with_exclusive
    containers = (each for sandbox in sandboxes for each in node.containers_of(sandbox))
    return [each.key for each in containers if each.key in node.grants and node.grants[each.key].exclusive]


def with_leaver(node: Node, container: Container, had: CpuSet, policy: Policy) -> Node:
    """Return the node that keeps the exclusive CPUs that *container*, which has ended, *had*.

    The CPUs of a container that the runtime never created, that has a later attempt, or of an ended pod are not kept.
    """
    pod = node.pods.get(container.pod)
    if not had or node.released or not container.has_id or not keeps(policy):
        return node
    if pod is None or pod.stopped or not pod.uid or has_later_attempt(node, container):
        return node
    kept = node.kept.get(pod.uid, NOTHING).with_last(container.name, had)
    others = (key for key in _holders(node, pod.uid) if key != container.key)
    owned = NO_CPUS.union(*(node.grants[key].exclusive for key in others))
    return with_kept_of(node, pod.uid, within_total(kept, owned, pod, node))


def within_total(kept: Kept, owned: CpuSet, pod: Pod, node: Node) -> Kept:
    """Return what *pod*, whose containers have *owned*, may keep of *kept*; the oldest kept CPUs are released first.

    Requests of its running containers beyond their exclusive CPUs count towards the total, too. Without a known total,
    it may keep all of it.
    """
    if pod.cap_milli is None:
        return kept
    room, found = (pod.cap_milli - _shared_milli(node, pod)) // 1000 - len(owned), owned
    names: dict[str, CpuSet] = {}
    for name in reversed(list(kept.by_name)):
        cpus = kept.by_name[name]
        more = cpus - found
        stay = more if len(more) <= room else take_cpus(node.topology, more, max(room, 0))
        names[name] = (cpus & found) | stay
        room, found = room - len(stay), found | stay
    return Kept({name: names[name] for name in kept.by_name if names[name]})


def _shared_milli(node: Node, pod: Pod) -> int:
    """Return the CPU that running containers of *pod* request beyond their exclusive CPUs, in milli.

    Containers without a size of their own do not count, nor one that requests the total: it may be among them.
    """
    alive = (each for each in node.containers_of(pod.key) if each.state is not ContainerState.EXITED)
    sized = (each for each in alive if each.key in node.grants and not each.of_pod)
    placed = [(each.cpu_request_milli.low, node.grants[each.key]) for each in sized]
    return sum(max(low - 1000 * len(grant.exclusive), 0) for low, grant in placed if low < (pod.cap_milli or 0))


def with_kept_of(node: Node, uid: str, kept: Kept) -> Node:
    """Return the node with *kept* for the pod *uid*; no container moves."""
    before = node.kept.get(uid, NOTHING)
    if list(kept.by_name.items()) == list(before.by_name.items()):
        return node
    rest: dict[str, Kept] = {other: cpus for other, cpus in node.kept.items() if other != uid}
    return node.replace(kept={**rest, uid: kept} if kept.by_name else rest)


def _unused(node: Node, cpus: CpuSet, places: Iterable[CpuSet]) -> CpuSet:
    """Return those of *cpus* that are neither exclusive nor watched, and not in any of *places*."""
    return (cpus & node.topology.cpus) - node.exclusive_cpus - node.watched_cpus - NO_CPUS.union(*set(places))


def place_with_kept(node: Node, container: Container, pod: Pod, policy: Policy) -> Placed:
    """Return the node with a container of *pod*, which has kept CPUs.

    It gets the CPUs of its last attempt, if they match its request. Otherwise it gets others if the total of the pod
    has room for them; if not, or if there are none, it gets kept CPUs of its pod.
    """
    own, old = node.kept[pod.uid], node.grants.get(container.key)
    is_new = old is None or not old.exclusive  # one created while the policy was not asked has shared until now
    had = own.of(container.name) - node.owned_cpus if is_new else NO_CPUS
    if had and (placed := _again(node, container, pod, had, policy)):
        return placed
    try:
        placed = ask(node, container, policy, shown(node, had))
    except NotEnough:
        return _place_on_kept(node, container, pod, own, policy)
    mine = placed.node.own_cpus(container.key)
    if had:  # the former attempt is no longer the last one
        names = {**own.by_name, container.name: had & mine}
        return _keeping(placed, pod, Kept(names).within(own.cpus))
    if not (mine and is_new) or _has_room(node, pod, own, mine):
        return placed
    return _place_on_kept(node, container, pod, own, policy)


def _again(node: Node, container: Container, pod: Pod, had: CpuSet, policy: Policy) -> Placed | None:
    """Return its place on the exclusive CPUs that its last attempt *had*; None if its request differs."""
    try:
        placed = ask(node, container, policy, shown(node, had, only=had))
    except NotEnough:
        return None
    mine = placed.node.own_cpus(container.key)
    if not mine or not mine <= had:
        return None
    reason = f"{container.title} has {numbered('CPU', mine)} again, kept for its pod until now"
    placed = _keeping(placed, pod, Kept({**node.kept[pod.uid].by_name, container.name: mine}))
    return replace(placed, reasons=(*placed.reasons, Reason(container.key, reason)))


def _place_on_kept(node: Node, container: Container, pod: Pod, own: Kept, policy: Policy) -> Placed:
    """Return the node with a container that gets kept CPUs of its *pod*, or others in addition to them."""
    try:
        placed = ask(node, container, policy, shown(node, own.cpus, only=own.cpus - node.owned_cpus))
    except NotEnough:
        pass
    else:
        mine = placed.node.own_cpus(container.key)
        if mine and mine <= own.cpus:  # the rest stays kept, and no other pod may share it
            return replace(placed, node=reshared(placed.node, own.cpus - placed.node.owned_cpus, policy))
    placed = ask(node, container, policy, shown(node, own.cpus))
    return _keeping(placed, pod, own.within(placed.node.own_cpus(container.key) | owned_by(node, pod.uid)))


def _keeping(placed: Placed, pod: Pod, kept: Kept) -> Placed:
    return replace(placed, node=with_kept_of(placed.node, pod.uid, kept))


def _has_room(node: Node, pod: Pod, own: Kept, mine: CpuSet) -> bool:
    """Whether the total of *pod* has room for the CPUs *mine* in addition to its kept CPUs."""
    if pod.cap_milli is None:
        return mine <= own.cpus
    return len(mine | own.cpus | owned_by(node, pod.uid)) * 1000 <= pod.cap_milli


def without_excess(before: Node, after: Node, pod: Pod, policy: Policy) -> Node:
    """Return the node *after* a container was placed without kept CPUs that exceed the total of *pod*, or are shared.

    CPUs that a smaller container leaves may be kept under another name, too: the policy did not see them as taken.
    """
    if (own := after.kept.get(pod.uid)) is None:
        return after
    places = {grant.cpus - grant.exclusive for grant in after.grants.values() if grant.shares}
    given_up = owned_by(before, pod.uid) - after.owned_cpus
    return at_most_total(after, pod, own.within(own.cpus - given_up - NO_CPUS.union(*places)), policy)


def at_most_total(node: Node, pod: Pod, kept: Kept, policy: Policy) -> Node:
    """Return the node in which *pod* keeps no more than *kept*, and than its total."""
    left = within_total(kept, owned_by(node, pod.uid), pod, node)
    return node if left == node.kept[pod.uid] else with_other_kept(node, with_kept_of(node, pod.uid, left).kept, policy)


def with_other_kept(node: Node, kept: Mapping[str, Kept], policy: Policy) -> Node:
    """Return the node with other kept CPUs; shared containers leave these, and get those no longer kept."""
    after = node.replace(kept=kept)
    return reshared(after, after.exclusive_cpus ^ node.exclusive_cpus, policy)


def trimmed(node: Node, policy: Policy) -> Node:
    """Return the node in which no pod keeps more than its total, according to its newest sandbox."""
    for uid, kept in node.kept.items():
        if newest := newest_sandbox(node, uid):
            node = at_most_total(node, newest, kept, policy)
    return node


def without_ended(node: Node, policy: Policy) -> Node:
    """Return the node without kept CPUs of pods that have ended."""
    living = {pod.uid for pod in node.pods.values() if not pod.stopped}
    kept = {uid: each for uid, each in node.kept.items() if uid in living}
    return node if len(kept) == len(node.kept) else with_other_kept(node, kept, policy)


def inherited(node: Node, pod: Pod, inherits: Mapping[str, CpuSet], policy: Policy) -> Node:
    """Return the node that keeps for *pod* the CPUs of its former sandbox that are not exclusive to others."""
    if not inherits or not keeps(policy) or not pod.uid or pod.uid in node.kept or node.released:
        return node
    options = options_of(policy)
    free = _unused(options.within(node), NO_CPUS.union(*inherits.values()), ())
    kept = within_total(Kept(inherits).within(free), owned_by(node, pod.uid), pod, node)
    while kept.by_name:
        made = with_other_kept(node, {**node.kept, pod.uid: kept}, policy)
        here = (grant.cpus for grant in made.grants.values() if not grant.exclusive or grant.shares)
        left = kept.within(_unused(node, kept.cpus, here))
        if left == kept and options.within(made).shared_cpus:
            return made
        kept = left if left != kept else NOTHING  # otherwise a shared container would have no CPU
    return node
