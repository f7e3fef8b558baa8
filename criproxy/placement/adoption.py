"""Adopts running containers: those that were started without criproxy, or whose rows the store has lost.

Adoption moves no container: its present place becomes its grant, unless that violates a rule. The policy is asked what
each would get on the empty machine, which shows for any policy which containers are exclusive and which share. It is
asked about the real node only for exclusive ones that cannot stay, so a thousand containers cost a thousand small
queries and not a thousand that grow with the node.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from criproxy.model.attributes import as_granted
from criproxy.model.controls import Controls
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS, PRESERVED, CpuQuota, Grant, Reason
from criproxy.model.node import Explained, Node, without
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container, ContainerState, Miss
from criproxy.placement.decision import Decision, reasons_with_memory_as_before, updates_between, with_memory_as_before
from criproxy.placement.events import Found, Present, Unclassified
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.attributes.classes import reclassified
from criproxy.placement.rules.attributes.quota import honest, owns_all
from criproxy.placement.rules.pipeline import place
from criproxy.placement.rules.pod_total import asks_milli, counted
from criproxy.placement.rules.preserved import preserved
from criproxy.placement.rules.promotion import to_be_promoted
from criproxy.placement.rules.transitions import has_given_way


@dataclass(frozen=True, slots=True)
class _Adopted:
    """A container that is adopted."""

    container: Container
    asked: Container
    """With what it shares with its siblings as its request, see `asks_milli`."""
    has: CpuSet
    """Those of its CPUs that pods may use; empty if unknown."""
    mems: CpuSet
    """The memory nodes for its grant: adoption never moves memory. Empty if its own are not valid in a grant."""
    present: Present
    wish: Grant
    """The grant that it would get on the empty machine."""

    @property
    def quota(self) -> CpuQuota:
        """Whether criproxy has lifted its quota: only if it placed the container, and a quota was requested."""
        lifted = self.present.has and self.present.has.lifted
        ours = self.container.reservation and self.container.asked_quota
        return CpuQuota.LIFTED if lifted and ours else CpuQuota.LEFT


def adopt(node: Node, event: Found, policy: Policy) -> Decision:
    """Add the pods and containers of *event* that are not known yet."""
    known = node.replace(pods={**{pod.key: pod for pod in event.pods}, **node.pods})
    known = _left_where_they_are(known, event.containers)
    news = [present for present in event.containers if _is_news(known, present.container, watch=event.watch)]
    if not news:
        changed = len(known.pods) > len(node.pods) or known.containers is not node.containers
        return Decision(known if changed else node, updates_between(node, known) if changed else ())
    watched = [p for p in news if p.container.stays or (event.watch and not p.container.reservation)]
    after = _added(known, news)
    for pod in {present.container.pod for present in news}:
        after = counted(after, pod, arrives=True)
    news = [replace(p, container=_counted_as(p.container, after)) for p in news]
    adopted = [_adopted(after, p, policy) for p in news if p not in watched and not has_given_way(after, p.container)]
    after = after.replace(applied={**after.applied, **{p.container.key: p.has or node.anywhere for p in watched}})
    placed = [one for one in adopted if one]
    after, reasons = _placed(after, placed, policy, is_before_change=event.is_before_change)
    summary = f"found {len(news)} containers: {len(placed)} are placed and {len(watched)} watched"
    return Decision(after, updates_between(node, after), (Reason(None, summary), *reasons))


def classify(node: Node, event: Unclassified, policy: Policy) -> Decision:
    """Look up the classes of containers that a criproxy without classes has placed."""
    pods, containers = dict(node.pods), dict(node.containers)
    for key in event.annotations.keys() & pods.keys():
        pods[key] = replace(pods[key], annotations=event.annotations[key])
    for key, files in event.kubelet_files.items():
        if key in containers and files:
            containers[key] = replace(containers[key], kubelet_files=files)
    known = node.replace(pods=pods, containers=containers)
    after, reasons = reclassified(node, known, policy, event.kubelet_files)
    return Decision(after, updates_between(node, after), reasons)


def _left_where_they_are(node: Node, presents: Iterable[Present]) -> Node:
    """Return the node with known containers watched that could lose a card by an update, which was just found out.

    A container with only exclusive CPUs keeps its grant; a shared one would have to move for others.
    """
    late = [present for present in presents if _may_lose_a_card(node, present.container)]
    for present in late:
        key = present.container.key
        container = replace(node.containers[key], stays=True)
        node = node.replace(containers={**node.containers, key: container})
        if (grant := node.grants.get(key)) is None or not owns_all(grant):
            has = node.applied.get(key) or present.has or node.anywhere
            node = node.replace(grants=without(node.grants, (key,)), applied={**node.applied, key: has})
    return node


def _may_lose_a_card(node: Node, container: Container) -> bool:
    known = node.containers.get(container.key)
    if known is None or known.stays or not container.stays:
        return False
    return known.state is not ContainerState.EXITED and known.has_id


def _is_news(node: Node, container: Container, *, watch: bool) -> bool:
    if container.state is ContainerState.EXITED or container.reservation in node.containers:
        return False  # the create of such a reservation has not been confirmed yet
    known = node.containers.get(container.key)
    return known is None or (node.is_watched(container.key) and not watch and not known.stays)


def _adopted(node: Node, present: Present, policy: Policy) -> _Adopted | None:
    """Return the container to adopt; None if the policy leaves it alone."""
    asked = replace(present.container, cpu_milli=asks_milli(node, present.container))
    wish = _wish(node, policy, asked)
    if wish is None and node.exclusive_cpus:  # with the policy none, after another one
        wish = Grant(node.topology.cpus, NO_CPUS, pool=PRESERVED)
    if wish is None:
        return None
    cpus, mems, topology = NO_CPUS, NO_CPUS, node.topology
    if has := present.has:
        cpus = has.cpus & topology.cpus
        mems = has.mems if has.mems <= topology.mems and topology.can_hold(has.mems) else NO_CPUS
    return _Adopted(present.container, asked, cpus, mems, present, wish)


def _counted_as(container: Container, node: Node) -> Container:
    counts = node.containers[container.key]
    return replace(container, of_pod=counts.of_pod, cpu_milli=counts.cpu_milli)


def _wish(node: Node, policy: Policy, container: Container, old: Grant | None = None) -> Grant | None:
    """Return the grant that *container* would get alone on the machine, or would keep of *old*."""
    key = container.key
    alone = Node(node.topology, node.pods, containers={key: container}, grants={key: old} if old else {})
    try:
        return place(alone, container, policy).node.grants.get(key)
    except Exception:  # noqa: BLE001 (it already runs, even if an external policy fails; larger than the machine: it shares)
        return Grant(node.topology.cpus, NO_CPUS)


def _added(node: Node, news: Sequence[Present]) -> Node:
    containers = {present.container.key: present.container for present in news}
    added = node.replace(containers={**node.containers, **containers})
    given_up = (each for each in containers.values() if has_given_way(added, each))
    ended = {each.key: replace(each, state=ContainerState.EXITED) for each in given_up}
    return added.replace(containers={**added.containers, **ended}) if ended else added


def _placed(node: Node, adopted: Sequence[_Adopted], policy: Policy, *, is_before_change: bool) -> Explained:
    """Place the adopted containers, exclusive ones first: shared ones leave CPUs for them."""
    others, before = _Others(node, adopted), node
    exclusive = [one for one in adopted if _may_be_exclusive(one, others, is_before_change=is_before_change)]
    reasons = list[Reason]()
    unplaced = list[_Adopted]()
    for one in exclusive:
        node, why, placed = _exclusive(node, one, others, policy)
        reasons += why
        if not placed:
            unplaced.append(one)
    owning = {one.container.key for one in exclusive}
    shared = [one for one in adopted if one.container.key not in owning]
    node = _share(node, shared + unplaced, policy)
    node = to_be_promoted(node, Miss.UNFIT, [each.container.key for each in unplaced if each.container.reservation])
    node, why = _kept_off(preserved(node), policy)
    node = _with_quotas(node, adopted)
    node, why_files = reclassified(*_with_files(before, node, adopted), policy, [one.container.key for one in adopted])
    applied = {
        n.container.key: as_granted(n.present.has, node.grants.get(n.container.key)) for n in adopted if n.present.has
    }
    return node.replace(applied={**node.applied, **applied}), (*reasons, *why, *why_files)


def _with_quotas(node: Node, adopted: Sequence[_Adopted]) -> Node:
    """Return the node with the quota restored for containers whose quota was lifted, but that share CPUs."""
    lifted = (one.container.key for one in adopted if one.quota is CpuQuota.LIFTED)
    left = [key for key in lifted if key in node.grants and node.grants[key].quota is CpuQuota.LEFT]
    restored = {key: replace(node.grants[key], quota=CpuQuota.RESTORED) for key in left}
    return node.replace(grants={**node.grants, **restored}) if restored else node


def _with_files(before: Node, node: Node, adopted: Sequence[_Adopted]) -> tuple[Node, Node]:
    """Return *before* and *node* with the files that criproxy set for the *adopted* containers, which may be put back.

    What their classes were is not known any more.
    """
    ours = {one.container.key: Controls(one.present.files) for one in adopted if one.present.files}
    had = {key: replace(node.grants[key], controls=ours[key]) for key in ours.keys() & node.grants.keys()}
    if not had:
        return before, node
    return before.replace(grants={**before.grants, **had}), node.replace(grants={**node.grants, **had})


class _Others:
    """The CPUs of the other containers."""

    def __init__(self, node: Node, adopted: Iterable[_Adopted]) -> None:
        # Most containers have one of a few sets.
        # A preserved container is on all CPUs, which does not make the CPUs of another container shared.
        self._sets = Counter(one.has for one in adopted if not one.wish.is_preserved)
        self._sets.update(grant.cpus for grant in node.grants.values() if not grant.is_preserved)

    def besides(self, one: _Adopted) -> CpuSet:
        """Return all CPUs of the containers other than *one*."""
        own = one.has
        return NO_CPUS.union(*(cpus for cpus, count in self._sets.items() if cpus != own or count > 1))


def _may_be_exclusive(one: _Adopted, others: _Others, *, is_before_change: bool) -> bool:
    """Whether it gets exclusive CPUs: if criproxy placed it, as the policy decides; others only if they have them.

    Before a change of the policy, it is another policy that placed it: then it has what it got from that one.
    """
    wish = one.wish
    if not wish.exclusive or (one.container.reservation and not is_before_change):
        return bool(wish.exclusive)
    alone = one.has.isdisjoint(others.besides(one))
    return alone and len(one.has) == len(wish.exclusive) == len(wish.cpus)


def _exclusive(node: Node, one: _Adopted, others: _Others, policy: Policy) -> tuple[Node, tuple[Reason, ...], bool]:
    """Return the node with *one* in its present place, or placed by the policy, or (and False) without a grant."""
    container, count = one.container, len(one.wish.exclusive)
    claim = one.has if len(one.has) == count else one.has - others.besides(one)
    claim -= node.exclusive_cpus
    if grant := _confirmed(node, one, claim, policy):
        return node.replace(grants={**node.grants, container.key: grant}), (), True
    known = node
    if claim:
        present = Grant(one.has, one.mems, claim, quota=one.quota)
        known = node.replace(grants={**node.grants, container.key: present})
    where = numbered("CPU", one.has) if one.has else "unknown CPUs"
    had = f"{container.title} cannot keep {count} of {where} exclusively"
    try:
        placed = place(known, container, policy)
    except Exception as error:  # noqa: BLE001 (as above)
        return node, (Reason(container.key, f"{had}, and shares CPUs: {error}"),), False
    grants = dict(with_memory_as_before(known, placed.node.grants, container.key))
    grants[container.key] = replace(grants[container.key], mems=one.mems)
    lost = () if grants[container.key].exclusive == one.has else (Reason(container.key, had),)
    reasons = *lost, *reasons_with_memory_as_before(placed.reasons)
    return placed.node.replace(grants=grants), reasons, True


def _confirmed(node: Node, one: _Adopted, claim: CpuSet, policy: Policy) -> Grant | None:
    """Return its present place as a grant if the policy would keep it on an empty machine; else None."""
    count, alone = len(one.wish.exclusive), len(one.wish.cpus) == len(one.wish.exclusive)
    if len(claim) < count or (alone and len(one.has) != count):
        return None
    kept = _wish(node, policy, one.asked, Grant(one.has, one.mems, claim))
    if kept is None or not kept.exclusive <= claim or len(kept.exclusive) != count:
        return None
    leaves_some = node.shared_cpus - kept.exclusive
    grant = Grant(one.has, one.mems, kept.exclusive, kept.pool, quota=one.quota)
    return honest(grant) if leaves_some else None


def _share(node: Node, shared: Iterable[_Adopted], policy: Policy) -> Node:
    """Return the node with the containers *shared* on those of their CPUs that are not exclusive."""
    grants = dict(node.grants)
    made: dict[tuple[CpuSet, CpuSet, str], Grant] = {}
    for one in shared:
        pool = one.wish.pool if one.has and one.has <= one.wish.cpus else ""
        pool = PRESERVED if one.wish.is_preserved else pool
        where = one.has, one.mems, pool
        if where not in made:
            cpus = one.has - node.exclusive_cpus or _for_all(node, policy)
            made[where] = Grant(one.has if cpus == one.has else cpus, one.mems, pool=pool)
        if made[where].cpus:
            grants[one.container.key] = made[where]
    return node.replace(grants=grants)


def _for_all(node: Node, policy: Policy) -> CpuSet:
    """Return the CPUs for a shared container that has none left: the shared CPUs that are available to *policy*."""
    return options_of(policy).within(node).shared_cpus or node.shared_cpus


def _kept_off(node: Node, policy: Policy) -> Explained:
    """Return the node with shared containers removed from the exclusive CPUs of others, and the reason."""
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
    text = f"shared containers leave {numbered('CPU', left)}, which {are(len(left))} exclusive to others"
    return node.replace(grants=grants), (Reason(None, text),)
