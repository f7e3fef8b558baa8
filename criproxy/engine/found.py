"""Taking in what runs already: containers that somebody else started, or whose rows the store has lost.

Nothing moves because of it: where a container is becomes its grant, unless that breaks a rule. The policy is asked what
each would get on the empty machine: that says who owns CPUs and who shares, whatever the policy's rules are. About the
real node it is asked only for owners that cannot stay as they are, so a thousand containers cost a thousand small
questions and not a thousand that grow with the node.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from criproxy.engine.decision import Decision
from criproxy.engine.events import Found, Present
from criproxy.engine.preserved import preserved
from criproxy.engine.promotion import to_be_promoted
from criproxy.engine.quota import honest, owns_all
from criproxy.engine.transitions import LATER_ATTEMPT, state_after
from criproxy.engine.updates import updates_between, with_memory_as_before
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.entries import with_entries, without
from criproxy.model.grant import NO_CPUS, PRESERVED, Applied, CpuQuota, Grant
from criproxy.model.node import Node
from criproxy.model.reason import Reason
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, ContainerState, Miss
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A container that is taken in."""

    container: Container
    has: CpuSet
    """CPUs that pods may use, of those that it is on; empty where it is not known."""
    mems: CpuSet
    """For its grant: memory is never moved by this."""
    present: Present
    wish: Grant
    """What it would get on the empty machine."""

    @property
    def quota(self) -> CpuQuota:
        """Whether its quota was lifted: then it is one of ours, and had asked for one. What others do is theirs."""
        lifted = self.present.has and self.present.has.lifted
        ours = self.container.reservation and self.container.asked_quota
        return CpuQuota.LIFTED if lifted and ours else CpuQuota.LEFT


def take_in(node: Node, event: Found, policy: Policy) -> Decision:
    """Add the pods and containers of *event* that are not known yet."""
    known = node.replace(pods={**{pod.key: pod for pod in event.pods}, **node.pods})
    known = _left_where_they_are(known, event.containers)
    news = [present for present in event.containers if _is_news(known, present.container, watch=event.watch)]
    if not news:
        changed = len(known.pods) > len(node.pods) or known.containers is not node.containers
        return Decision(known if changed else node, updates_between(node, known) if changed else ())
    watched = [p for p in news if p.container.stays or (event.watch and not p.container.reservation)]
    after = _added(known, news)
    newcomers = [_newcomer(known, p, policy) for p in news if p not in watched and not _has_given_way(after, p)]
    after = after.replace(applied={**after.applied, **{p.container.key: p.has or _anywhere(node) for p in watched}})
    placed = [newcomer for newcomer in newcomers if newcomer]
    after, reasons = _placed(after, placed, policy)
    summary = f"found {len(news)} containers: {len(placed)} are placed and {len(watched)} watched"
    return Decision(after, updates_between(node, after), (Reason(None, summary), *reasons))


def _left_where_they_are(node: Node, presents: Iterable[Present]) -> Node:
    """The node with those watched that are known and of which only now is known that an update may take a card away.

    Who owns all of its CPUs keeps them; who shares would have to move for others.
    """
    late = [present for present in presents if _may_lose_a_card(node, present.container)]
    for present in late:
        key = present.container.key
        container = replace(node.containers[key], stays=True)
        node = node.replace(containers=with_entries(node.containers, {key: container}))
        if (grant := node.grants.get(key)) and not owns_all(grant):
            has = node.applied.get(key) or present.has or _anywhere(node)
            node = node.replace(grants=without(node.grants, (key,)), applied=with_entries(node.applied, {key: has}))
    return node


def _may_lose_a_card(node: Node, container: Container) -> bool:
    known = node.containers.get(container.key)
    if known is None or known.stays or not container.stays:
        return False
    return known.state is not ContainerState.EXITED and known.key != known.reservation


def _is_news(node: Node, container: Container, *, watch: bool) -> bool:
    if container.state is ContainerState.EXITED or container.reservation in node.containers:
        return False  # of the latter, the create has not been confirmed yet
    known = node.containers.get(container.key)
    return known is None or (node.is_watched(container.key) and not watch and not known.stays)


def _anywhere(node: Node) -> Applied:
    return Applied(node.topology.cpus, node.topology.mems)


def _newcomer(node: Node, present: Present, policy: Policy) -> _Newcomer | None:
    """None if the policy leaves it alone."""
    wish = _wish(node, policy, present.container)
    if wish is None and node.exclusive_cpus:  # by the policy none, after another one
        wish = Grant(node.topology.cpus, NO_CPUS, pool=PRESERVED)
    if wish is None:
        return None
    has = present.has.cpus & node.topology.cpus if present.has else NO_CPUS
    return _Newcomer(present.container, has, _mems(node.topology, present.has), present, wish)


def _wish(node: Node, policy: Policy, container: Container, old: Grant | None = None) -> Grant | None:
    """What *container* would get if it were alone on the machine, or would keep of *old*."""
    key = container.key
    alone = Node(node.topology, node.pods, containers={key: container}, grants={key: old} if old else {})
    try:
        return policy.place(alone, container).grants.get(key)
    except Exception:  # noqa: BLE001 (it runs already, whatever a stranger's policy says; larger than the machine: it shares)
        return Grant(node.topology.cpus, NO_CPUS)


def _mems(topology: Topology, has: Applied | None) -> CpuSet:
    """The memory nodes that it has, if a grant may say so; else empty, and nobody touches them."""
    if has is None or not has.mems <= topology.mems or not topology.can_hold(has.mems):
        return NO_CPUS
    return has.mems


def _added(node: Node, news: Sequence[Present]) -> Node:
    containers = {present.container.key: present.container for present in news}
    added = node.replace(containers={**node.containers, **containers})
    ended = {
        p.container.key: replace(p.container, state=ContainerState.EXITED) for p in news if _has_given_way(added, p)
    }
    return added.replace(containers={**added.containers, **ended}) if ended else added


def _has_given_way(node: Node, present: Present) -> bool:
    """Whether it never ran and a later attempt has taken its place, as the step for a create has it."""
    container = present.container
    return state_after(container, LATER_ATTEMPT) is not container.state and any(
        other.name == container.name and other.attempt > container.attempt
        for other in node.containers_of(container.pod)
    )


def _placed(node: Node, newcomers: Sequence[_Newcomer], policy: Policy) -> tuple[Node, tuple[Reason, ...]]:
    """Owners first: the others make room for them."""
    others = _Others(node, newcomers)
    owners = [newcomer for newcomer in newcomers if _may_own(newcomer, others)]
    reasons = list[Reason]()
    homeless = list[_Newcomer]()
    for owner in owners:
        node, told, placed = _own(node, owner, others, policy)
        reasons += told
        if not placed:
            homeless.append(owner)
    owning = {owner.container.key for owner in owners}
    sharers = [newcomer for newcomer in newcomers if newcomer.container.key not in owning]
    node = _share(node, sharers + homeless, policy)
    node = to_be_promoted(node, Miss.UNFIT, [each.container.key for each in homeless if each.container.reservation])
    node, told = _kept_off(preserved(node), policy)
    node = _with_quotas(node, newcomers)
    applied = {n.container.key: _as_granted(node, n.container.key, n.present.has) for n in newcomers if n.present.has}
    return node.replace(applied={**node.applied, **applied}), (*reasons, *told)


def _as_granted(node: Node, key: str, has: Applied) -> Applied:
    """The same, with the very set of the grant where it is the same set: that makes comparing a thousand cheap."""
    grant = node.grants.get(key)
    lifted = has.lifted and grant is not None and grant.quota is not CpuQuota.LEFT
    return Applied(grant.cpus if grant and grant.cpus == has.cpus else has.cpus, has.mems, lifted)


def _with_quotas(node: Node, newcomers: Sequence[_Newcomer]) -> Node:
    """The node with a quota for those that had lost theirs, and do not own all of their CPUs."""
    lifted = (newcomer.container.key for newcomer in newcomers if newcomer.quota is CpuQuota.LIFTED)
    left = [key for key in lifted if key in node.grants and node.grants[key].quota is CpuQuota.LEFT]
    restored = {key: replace(node.grants[key], quota=CpuQuota.RESTORED) for key in left}
    return node.replace(grants={**node.grants, **restored}) if restored else node


class _Others:
    """Who else is on which CPUs."""

    def __init__(self, node: Node, newcomers: Iterable[_Newcomer]) -> None:
        # Most share one of a few sets.
        # Who is left alone is everywhere: that keeps nobody from going on alone.
        self._sets = Counter(newcomer.has for newcomer in newcomers if not newcomer.wish.is_preserved)
        self._sets.update(grant.cpus for grant in node.grants.values() if not grant.is_preserved)

    def besides(self, newcomer: _Newcomer) -> CpuSet:
        """All CPUs that somebody but *newcomer* is on."""
        own = newcomer.has
        return NO_CPUS.union(*(cpus for cpus, count in self._sets.items() if cpus != own or count > 1))


def _may_own(newcomer: _Newcomer, others: _Others) -> bool:
    """Whether it is to own CPUs: ours if the policy says so, others' only if they do already."""
    wish = newcomer.wish
    if not wish.exclusive or newcomer.container.reservation:
        return bool(wish.exclusive)
    alone = newcomer.has.isdisjoint(others.besides(newcomer))
    return alone and len(newcomer.has) == len(wish.exclusive) == len(wish.cpus)


def _own(node: Node, owner: _Newcomer, others: _Others, policy: Policy) -> tuple[Node, tuple[Reason, ...], bool]:
    """The node with *owner* where it is, else where the policy puts it, else (and False) without a place for it."""
    container, count = owner.container, len(owner.wish.exclusive)
    claim = owner.has if len(owner.has) == count else owner.has - others.besides(owner)
    claim -= node.exclusive_cpus
    if grant := _confirmed(node, owner, claim, policy):
        return node.replace(grants={**node.grants, container.key: grant}), (), True
    known = node
    if claim:
        place = Grant(owner.has, owner.mems, claim, quota=owner.quota)
        known = node.replace(grants={**node.grants, container.key: place})
    had = f"{container.title} cannot keep {count} of CPUs {format_cpuset(owner.has) or 'unknown'} exclusively"
    try:
        layout = policy.place(known, container)
    except Exception as error:  # noqa: BLE001 (as above)
        return node, (Reason(container.key, f"{had} and shares: {error}"),), False
    grants = dict(with_memory_as_before(known, layout.grants, container.key))
    grants[container.key] = replace(grants[container.key], mems=owner.mems)
    reasons = Reason(container.key, had), *layout.reasons_about(container.key)
    return node.replace(grants=grants, kept=layout.kept), reasons, True


def _confirmed(node: Node, owner: _Newcomer, claim: CpuSet, policy: Policy) -> Grant | None:
    """Its present place as a grant, if the policy would let it keep that on an empty machine; else None."""
    count, alone = len(owner.wish.exclusive), len(owner.wish.cpus) == len(owner.wish.exclusive)
    if len(claim) < count or (alone and len(owner.has) != count):
        return None
    kept = _wish(node, policy, owner.container, Grant(owner.has, owner.mems, claim))
    if kept is None or not kept.exclusive <= claim or len(kept.exclusive) != count:
        return None
    leaves_some = node.shared_cpus - kept.exclusive
    grant = Grant(owner.has, owner.mems, kept.exclusive, kept.pool, quota=owner.quota)
    return honest(grant) if leaves_some else None


def _share(node: Node, sharers: Iterable[_Newcomer], policy: Policy) -> Node:
    """The node with *sharers* where they are, as far as nobody owns CPUs there."""
    grants = dict(node.grants)
    made: dict[tuple[CpuSet, CpuSet, str], Grant] = {}
    for sharer in sharers:
        pool = sharer.wish.pool if sharer.has and sharer.has <= sharer.wish.cpus else ""
        pool = PRESERVED if sharer.wish.is_preserved else pool
        place = sharer.has, sharer.mems, pool
        if place not in made:
            cpus = sharer.has - node.exclusive_cpus or _for_all(node, policy)
            made[place] = Grant(sharer.has if cpus == sharer.has else cpus, sharer.mems, pool=pool)
        if made[place].cpus:
            grants[sharer.container.key] = made[place]
    return node.replace(grants=grants)


def _for_all(node: Node, policy: Policy) -> CpuSet:
    """Where somebody goes who shares and has no CPU left: what nobody owns, of the CPUs that *policy* uses."""
    return options_of(policy).within(node).shared_cpus or node.shared_cpus


def _kept_off(node: Node, policy: Policy) -> tuple[Node, tuple[Reason, ...]]:
    """The node with everybody off the CPUs that others own, and a word about it."""
    owned = node.exclusive_cpus
    made: dict[Grant, Grant] = {}
    grants, left = dict(node.grants), NO_CPUS
    for key, grant in node.grants.items():
        foreign = (grant.cpus & owned) - grant.exclusive if grant.shares else NO_CPUS
        if foreign:
            if grant not in made:
                left_over = node.shared_cpus if grant.is_preserved else _for_all(node, policy)
                made[grant] = replace(grant, cpus=grant.cpus - foreign or left_over)
            grants[key] = made[grant]
            left |= foreign
    if not left:
        return node, ()
    text = f"shared containers leave CPUs {format_cpuset(left)}, which are exclusive to others"
    return node.replace(grants=grants), (Reason(None, text),)
