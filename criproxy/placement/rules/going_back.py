"""Returns containers to the places that they had before a configuration was tried, when the former one comes back.

A container that was there before returns, whatever the tried configuration did with it. One that came meanwhile stays
where it is, as after every change that applies to new containers, unless it runs on CPUs that a returning container
owned. Then the former policy places it, as it does with containers that were resized.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant, Reason
from criproxy.model.node import Node, Place, Places, Wish, without
from criproxy.model.workload import Container, ContainerState, Desired
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.ask import reshared
from criproxy.placement.rules.pipeline import place
from criproxy.placement.rules.release import is_still_on, is_there, staying

Unfit = tuple[Container, str]
"""A container for which the policy has no place, and its sentence."""
_NOWHERE = Grant(NO_CPUS, frozenset())


def as_before_try(
    node: Node, places: Places, policy: Policy, *, at_s: float = 0.0, was_released: bool = False
) -> tuple[Node, tuple[Unfit, ...], tuple[Reason, ...]]:
    """Return the node with its containers on their *places*, and those for which the former *policy* has no place.

    Containers that criproxy must not update stay where they are, and nobody gets CPUs on which they run. Memory stays
    where it is, because no change of the policy moves it, except that a release, *was_released*, has unpinned it.
    The reasons name containers that have been resized, but have no room at *at_s*, in seconds since the epoch.
    """
    back = {**_returning(node, places, was_released=was_released), **_still_there(node, places)}
    node = _owed_as_before(node, back, places)
    others = [each for each in node.containers.values() if each.key not in back and may_move(node, each)]
    owned = _owned(back.values())
    needed = owned | _grouped(node, back, policy)
    in_the_way = [each.key for each in others if node.own_cpus(each.key) & needed]
    after = node.replace(grants={**without(node.grants, in_the_way), **back})
    movable = [each for key in back if may_move(node, each := node.containers[key])]
    resized = [each for each in movable if each.cpu_milli != places[each.life].cpu_milli]
    lost = [each.key for each in others if _has_lost(node, each, places)]
    moves = after.grants != node.grants
    if not moves and not resized and not lost:
        return node, (), ()
    after = after.replace(kept={}) if after.kept and moves else after
    asked = {*lost, *in_the_way, *(key for key, now in node.grants.items() if now.cpus & owned)}
    here = [each for each in others if each.key in asked]
    after, small, reasons = _with_new_sizes(after, resized, places, policy, at_s)
    after, refused = _placed(after, here, policy, {**node.grants, **back})
    then = _owned(place.grant for place in places.values())
    had, has = node.exclusive_cpus, after.exclusive_cpus
    after = reshared(after, (had ^ has) | (then ^ has), policy)
    alone, more = _parted(after, back, others, policy)
    return alone, (*small, *refused, *more), reasons


def _returning(node: Node, places: Places, *, was_released: bool) -> dict[str, Grant]:
    """Return the grants of those who return to their *places*, by container key."""
    barred = node.watched_cpus | _owned(node.grants[key] for key in staying(node) if key in node.grants)
    memory = {} if was_released else node.grants
    had = ((each, places.get(each.life)) for each in node.containers.values() if may_move(node, each))
    there = ((each.key, place.grant) for each, place in had if place and is_there(node.topology, place.grant))
    return {key: grant.with_memory_of(memory.get(key, grant)) for key, grant in there if not grant.exclusive & barred}


def _still_there(node: Node, places: Places) -> dict[str, Grant]:
    """Return the grants of those that had to be left where they were, and that only a release has taken away."""
    left = ((key, places.get(node.containers[key].life)) for key in staying(node) if key not in node.grants)
    return {key: place.grant for key, place in left if place and is_still_on(node, key, place.grant)}


def _owed_as_before(node: Node, back: Collection[str], places: Places) -> Node:
    """Return the node whose containers miss what they missed before: what was tried may have forgotten it."""
    news = dict[str, Container]()
    for key, each in node.containers.items():
        place = places.get(each.life)
        if place is None or place.wish is None or not may_move(node, each):
            continue
        missed = place.wish.missed or (None if key in back else each.missed)
        if missed != each.missed:
            news[key] = replace(each, missed=missed)
    return node.replace(containers={**node.containers, **news}) if news else node


def _with_new_sizes(
    node: Node, resized: Iterable[Container], places: Places, policy: Policy, at_s: float
) -> tuple[Node, tuple[Unfit, ...], tuple[Reason, ...]]:
    """Return the node with the *resized* containers placed by *policy*, and those that it refuses.

    One that had a place is not among these: it stays there, with a reason, until there is room for its new size.
    """
    memory, refused, reasons = node.grants, list[Unfit](), list[Reason]()
    for container in resized:
        node, unfit = _placed(node, [container], policy, memory)
        place = places[container.life]
        if unfit and container.missed and not place.grant.exclusive:
            refused += unfit
        elif unfit:
            waiting = _waiting(container, place, at_s)
            node = node.replace(containers={**node.containers, container.key: waiting})
            text = f"{container.title} was resized, but has no more than its place from before the try: {unfit[0][1]}"
            reasons.append(Reason(container.key, text))
    return node, tuple(refused), tuple(reasons)


def _waiting(container: Container, place: Place, at_s: float) -> Container:
    """Return the resized *container* with the size of its *place*; the kubelet does not repeat the new one."""
    wish = place.wish or Wish(cpu_limit_milli=container.cpu_limit_milli)
    before = wish.desired if wish.desired and container.same_cpu(wish.desired.sizes) else None
    in_force = before is None or not before.told or before.in_force
    since_s = (before.since_s if before else 0.0) or at_s
    desired = Desired(sizes=container.sizes, since_s=since_s, told=True, in_force=in_force)
    return replace(container, cpu_milli=place.cpu_milli, cpu_limit_milli=wish.cpu_limit_milli, desired=desired)


def _grouped(node: Node, back: Mapping[str, Grant], policy: Policy) -> CpuSet:
    """Return the CPUs of groups, such as balloons, of those who come *back*: whoever else owns one leaves it."""
    together = NO_CPUS.union(*(grant.cpus for grant in back.values()))
    return together & options_of(policy).held(node.replace(grants=back))


def _parted(
    node: Node, back: Mapping[str, Grant], others: Iterable[Container], policy: Policy
) -> tuple[Node, tuple[Unfit, ...]]:
    """Return the node in which none of the *others* owns CPUs on which those who came *back* still run.

    The policy could not move these, because there is no other shared CPU.
    """
    shared = NO_CPUS.union(*(now.cpus - now.exclusive for key in back if (now := node.grants.get(key))))
    late = [each for each in others if node.own_cpus(each.key) & shared]
    if not late:
        return node, ()
    gone = _owned(node.grants[each.key] for each in late)
    left = node.replace(grants=without(node.grants, [each.key for each in late]))
    after, refused = _placed(left, late, policy, node.grants)
    return reshared(after, gone, policy), refused


def with_former_places(node: Node, places: Places) -> Node:
    """Return a released node whose containers have their *places* from before a try when the release ends."""
    there = ((key, each) for key, each in node.containers.items() if each.life in places and may_move(node, each))
    back = {key: places[each.life].grant for key, each in there} | _still_there(node, places)
    owned = _owned(back.values())
    others = {key: _shared(grant, owned) for key, grant in node.former.items() if key not in back}
    return _owed_as_before(node, back, places).replace(former={**others, **back})


def may_move(node: Node, container: Container) -> bool:
    """Whether *container* has not ended, and criproxy may give it another place."""
    return container.state is not ContainerState.EXITED and not (container.stays or node.is_watched(container.key))


def _has_lost(node: Node, container: Container, places: Places) -> bool:
    """Whether a *container* that does not return to its place has fewer CPUs of its own than it had there."""
    place = places.get(container.life)
    return place is not None and len(node.own_cpus(container.key)) < len(place.grant.exclusive)


def _placed(
    node: Node, chosen: Iterable[Container], policy: Policy, memory: Mapping[str, Grant]
) -> tuple[Node, tuple[Unfit, ...]]:
    """Return the node with the *chosen* containers placed by *policy*, and those that it refuses.

    The memory of each container stays where it is according to *memory*, or where the kernel has put it.
    """
    refused = list[Unfit]()
    for container in chosen:
        try:
            after = place(node, container, policy).node
        except Refused as error:
            refused.append((container, str(error)))
        else:
            grants = {key: grant.with_memory_of(memory.get(key, _NOWHERE)) for key, grant in after.grants.items()}
            node = after.replace(grants=grants)
    return node, tuple(refused)


def _shared(grant: Grant, owned: CpuSet) -> Grant:
    return replace(grant, exclusive=NO_CPUS) if grant.exclusive & owned else grant


def _owned(grants: Iterable[Grant]) -> CpuSet:
    return NO_CPUS.union(*(grant.exclusive for grant in grants))
