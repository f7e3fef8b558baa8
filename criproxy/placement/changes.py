"""Places containers again when the policy or the machine changes.

No running container is moved without need: each is placed again with its present place in the layout, so that a policy
can keep as much of it as possible, and memory stays on its NUMA nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS, PRESERVED, CpuQuota, Grant, Kept, Reason
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Explained, Node, Places
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container, ContainerState, Desired, Miss
from criproxy.placement.decision import Decision, reasons_with_memory_as_before, updates_between, with_memory_as_before
from criproxy.placement.events import PolicyChanged
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.rules import going_back, kept, release
from criproxy.placement.rules.ask import ask, without_grant
from criproxy.placement.rules.attributes.classes import reclassified
from criproxy.placement.rules.attributes.quota import honest, restored
from criproxy.placement.rules.pipeline import place
from criproxy.placement.rules.promotion import to_be_promoted

NO_MEMS: CpuSet = frozenset()


def policy_changed(node: Node, policy: Policy, event: PolicyChanged) -> Decision:
    """Place containers as `_policy_changed`; the classes of all containers count at once."""
    decision = _policy_changed(node, policy, event)
    if decision.node.released:
        return decision
    after, reasons = reclassified(node, decision.node, policy)
    if after is decision.node:
        return decision
    updates = updates_between(node, after, placed=True)
    return replace(decision, node=after, updates=updates, reasons=(*decision.reasons, *reasons))


def _policy_changed(node: Node, policy: Policy, event: PolicyChanged) -> Decision:
    """Place all containers with the new *policy*, or only new ones from now on; a release ends.

    A container that does not fit under the new policy shares CPUs from now on. The policy none releases all containers.
    After a requested release no container has a grant: all are placed again, and those that were released return to
    their former places.
    """
    if node.released and event.keeps_release:
        known = going_back.with_former_places(node, event.back) if event.back else node
        return Decision(known.replace(configuration=event.configuration))
    known = node
    if node.released or event.configuration != node.configuration:
        known = node.replace(released="", configuration=event.configuration)
    is_none = isinstance(policy, NonePolicy)
    if event.back is not None and not (is_none and not event.back):
        return _gone_back(node, known, policy, event)
    if not event.apply_all and event.back is None and (is_none or not release.was_requested(node)):
        if known.kept and not kept.keeps(policy):
            known = kept.with_other_kept(known, {}, policy)
        after = _share_rest(known, policy)
        reason = Reason(None, "the policy has changed: it places new containers, and running ones stay where they are")
        updates = updates_between(node, after, placed=True)
        is_first = not node.configuration and bool(event.configuration) and not updates
        return Decision(after, updates, () if is_first else (reason,))
    if is_none:
        freed = release.release(known, release.BY_NONE)
        return replace(freed, node=freed.node.replace(former={}))
    known = known.replace(kept={}) if known.kept else known
    # No container gets exclusive CPUs again while the policy is not asked: they may not be on disk.
    known = release.without_former(known) if isinstance(policy, Fallback) else release.as_before_release(known)
    ended = release.only_ends_release(node, event)
    after, reasons = _place_all(known, policy, node.former, at_s=event.at_s, may_stay=False, tells_all=ended)
    if isinstance(policy, Fallback):
        sharing = [key for key, grant in after.grants.items() if not grant.exclusive]
        after = to_be_promoted(after, Miss.BYPASSED, sharing)
    return _decision(node, after, "the release has ended" if ended else "the policy has changed", reasons)


def _gone_back(node: Node, known: Node, policy: Policy, event: PolicyChanged) -> Decision:
    """Return the decision about *node* when the configuration from before a try comes back; *known* has its digest."""
    there = known.replace(former={})
    after, refused, waiting = going_back.as_before_try(
        there, event.back or {}, policy, at_s=event.at_s, was_released=bool(node.released)
    )
    if isinstance(policy, Fallback):
        sizes = {life: place.cpu_milli for life, place in (event.back or {}).items()}
        resized = [
            key for key, each in after.containers.items() if sizes.get(each.life, each.cpu_milli) != each.cpu_milli
        ]
        after = to_be_promoted(after, Miss.BYPASSED, resized)
    reasons = list(waiting)
    for container, error in refused:
        after, why = _unfit(after, container, policy, error, may_stay=False)
        reasons += why
    after = _share_rest(after, policy)
    text = "the configuration from before the try is in effect again: containers are where they were"
    told = {each.key for each in reasons}
    returns = (each for each in _returns(node, after, event.back or {}) if each.key not in told)
    return Decision(after, updates_between(node, after, placed=True), (Reason(None, text), *reasons, *returns))


def _returns(before: Node, after: Node, places: Places) -> Iterator[Reason]:
    """Yield why containers are where they are *after* a try, for those whose exclusive CPUs or quota change."""
    for key, grant in after.grants.items():
        if _owns(grant) == _owns(before.grants.get(key)):
            continue
        container, rest = after.containers[key], grant.cpus - grant.exclusive
        place = places.get(container.life)
        is_back = place is not None and place.grant.exclusive == grant.exclusive
        why = "back where it was before the try" if is_back else "moved, because the try is over"
        parts = (("exclusive", grant.exclusive), ("shared", rest))
        cpus = " and ".join(f"{word} {numbered('CPU', each)}" for word, each in parts if each)
        yield Reason(key, f"{container.title} is {why}: {cpus}")


def _share_rest(node: Node, policy: Policy) -> Node:
    """Return the node with a grant of shared CPUs for each unplaced container that the policy does not leave alone.

    Otherwise they would run on exclusive CPUs of new containers. Their memory stays where it is.
    """
    shared = Grant(node.shared_cpus or node.topology.cpus, NO_MEMS)
    unplaced = (each for key, each in node.containers.items() if key not in node.grants and not node.is_watched(key))
    alive = (container for container in unplaced if container.state is not ContainerState.EXITED)
    pools = {container.key: _pool(policy, node, container) for container in alive}
    rest = {key: replace(shared, pool=pool) for key, pool in pools.items() if pool is not None}
    return node.replace(grants={**node.grants, **rest}) if rest else node


def _pool(policy: Policy, node: Node, container: Container) -> str | None:
    """Return the pool for the grant of an unplaced container; None if it gets no grant."""
    try:
        grant = ask(node, replace(container, cpu_milli=0), policy).node.grants.get(container.key)
    except Refused:
        return ""
    if grant is None:
        return None
    return PRESERVED if grant.is_preserved else ""


def topology_changed(node: Node, topology: Topology, policy: Policy) -> Decision:
    """Switch to the machine *topology*: remove offline CPUs from all grants; new ones can be granted.

    An exclusive container without a substitute keeps its remaining CPUs; one that has none left shares.
    """
    if not topology.cpus:
        text = "the machine cannot be read: it seems to have no CPU that pods may use"
        return Decision(node, reasons=(Reason(None, text),))
    if node.released:
        return release.still_released(node, topology)
    if topology != node.topology and topology == replace(node.topology, control_files=topology.control_files):
        return _with_files(node, topology, policy)
    usable = topology if topology == node.topology else options_of(policy).usable(topology)
    # Kept CPUs may be from before a restart on a larger machine.
    left: dict[str, Kept] | None = {} if (node.topology.cpus | node.kept_cpus) - topology.cpus else None
    moved = _fitted(node.replace(kept=left), topology, usable.cpus)
    if topology == node.topology and moved.grants == node.grants and moved.kept == node.kept:
        return Decision(node)
    after, reasons = _place_all(moved, policy, {}, may_stay=True)
    return _decision(node, after, _difference(node.topology, topology), reasons)


def _with_files(node: Node, topology: Topology, policy: Policy) -> Decision:
    """Switch to *topology*, where containers have other cgroup files, for example after a module was loaded."""
    after, reasons = reclassified(node, node.replace(topology=topology), policy)
    return Decision(after, updates_between(node, after), reasons)


def _difference(old: Topology, new: Topology) -> str:
    gone, come = old.cpus - new.cpus, new.cpus - old.cpus
    changed = ((gone, "no longer"), (come, "now"))
    words = [f"{numbered('CPU', cpus)} {are(len(cpus))} {word} available to pods" for cpus, word in changed if cpus]
    return "the machine has changed" + (": " + " and ".join(words) if words else "")


def _decision(before: Node, after: Node, why: str, reasons: tuple[Reason, ...]) -> Decision:
    updates = updates_between(before, after, placed=True)
    placed = sum(1 for key in after.grants if after.grants[key] != before.grants.get(key))
    summary = Reason(None, f"{why}: {placed} of {len(after.grants)} containers move")
    return Decision(after, updates, (summary, *reasons))


def _place_all(
    node: Node, policy: Policy, former: Mapping[str, Grant], *, at_s: float = 0, may_stay: bool, tells_all: bool = False
) -> Explained:
    """Place all containers again, oldest first; with reasons only for those whose exclusive CPUs or quota change.

    *former* has the grants from before a release that ends. With *tells_all*, there are reasons for all: after a
    release, none is where it is because of its last reason.
    """
    after, reasons = node, list[Reason]()
    refused: list[Container] = []
    for container in node.containers.values():
        if going_back.may_move(node, container):
            try:
                after, why = _place(after, container, policy, tells=tells_all)
                reasons += why
            except Refused:
                refused.append(container)
    for container in refused:  # others may have given up CPUs meanwhile
        try:
            after, why = _place(after, container, policy, tells=tells_all)
        except Refused as error:
            waiting = _waiting(after, container, policy, at_s) if container.key in former else None
            after, why = waiting or _unfit(after, container, policy, str(error), may_stay=may_stay)
        reasons += why
    return after, tuple(reasons)


def _waiting(node: Node, container: Container, policy: Policy, at_s: float) -> Explained | None:
    """Return the node in which *container*, which was resized during a release, has the CPUs from before that again.

    The kubelet does not repeat the new size: the container gets it when there is room. None if there is no room for the
    former size either.
    """
    grant = node.grants.get(container.key)
    cpu_milli = 1000 * len(grant.exclusive) if grant else 0
    if not 0 < cpu_milli < container.cpu_milli:
        return None
    desired = Desired(sizes=container.sizes, since_s=at_s, told=True, in_force=True)
    smaller = replace(container, cpu_milli=cpu_milli, desired=desired)
    try:
        known = node.replace(containers={**node.containers, container.key: smaller})
        after, why = _place(known, smaller, policy)
    except Refused:
        return None
    text = f"{container.title} was resized during the release, and waits for the CPUs that it lacks"
    return after, (*why, Reason(container.key, text))


def _place(node: Node, container: Container, policy: Policy, *, tells: bool = False) -> Explained:
    old = node.grants.get(container.key)
    placed = place(node, container, policy)
    after = placed.node.replace(grants=with_memory_as_before(node, placed.node.grants, container.key))
    is_told = tells or _owns(old) != _owns(after.grants.get(container.key))
    if container.missed:  # the policy has placed it now
        after = after.replace(containers={**node.containers, container.key: replace(container, missed=None)})
    return after, reasons_with_memory_as_before(placed.reasons) if is_told else ()


def _owns(grant: Grant | None) -> tuple[CpuSet, bool]:
    return (grant.exclusive, grant.quota is CpuQuota.LIFTED) if grant else (NO_CPUS, False)


def _unfit(node: Node, container: Container, policy: Policy, error: str, *, may_stay: bool) -> Explained:
    key = container.key
    old = node.grants.get(key)
    if old and may_stay:
        return node, (Reason(key, f"{container.title} stays on {numbered('CPU', old.cpus)}: {error}"),)
    if old:
        left = without_grant(node, key, policy).node.grants
        node = node.replace(grants=with_memory_as_before(node, left, key))
    cpus = options_of(policy).within(node).shared_cpus or node.shared_cpus
    shared = Grant(cpus, NO_MEMS, quota=restored(old))
    shared = shared.with_memory_of(old) if old else shared
    node = node.replace(grants={**node.grants, key: shared})
    return to_be_promoted(node, Miss.UNFIT, [key]), (Reason(key, f"{container.title} shares CPUs now: {error}"),)


def _fitted(node: Node, topology: Topology, usable: CpuSet) -> Node:
    """Return the node on *topology*: each grant within it and not empty, and a shared CPU among the *usable* ones."""
    grants = {key: _trimmed(grant, node.topology, topology) for key, grant in node.grants.items()}
    pool = usable - NO_CPUS.union(*(grant.exclusive for grant in grants.values()))
    for key in reversed(grants):  # the newest container gives up CPUs first
        if not pool and (pool := grants[key].exclusive & usable):
            given_up = grants[key].exclusive  # its siblings may share these
            grants |= {k: replace(g, exclusive=NO_CPUS) for k, g in grants.items() if g.exclusive & given_up}
    grants = {key: honest(grant if grant.cpus else replace(grant, cpus=pool)) for key, grant in grants.items()}
    return node.replace(topology=topology, grants=grants)


def _trimmed(grant: Grant, old: Topology, new: Topology) -> Grant:
    """Return the part of *grant* that exists on the machine *new*; the same object if that is all of it."""
    mems = new.mems if grant.mems == old.mems else grant.mems & new.mems
    if grant.mems and not new.can_hold(mems):
        mems = new.mems
    if grant.cpus | grant.exclusive <= new.cpus and mems == grant.mems:
        return grant
    # If its thread of a core is gone, another thread of that core may remain.
    cpus = grant.cpus if grant.cpus <= new.cpus else (grant.cpus | grant.exclusive) & new.cpus
    home = grant.home_mems & new.mems
    home = home if home < mems and new.can_hold(home) else NO_MEMS
    return replace(grant, cpus=cpus, mems=mems, exclusive=grant.exclusive & new.cpus, home_mems=home)
