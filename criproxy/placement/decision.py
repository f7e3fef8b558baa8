"""The result of an event: the new state, the updates that containers need, and what each of these may have now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from criproxy.model.attributes import granted, in_place
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, AboutMemory, Applied, CpuQuota, Grant, Reason
from criproxy.model.node import Node, changed_keys
from criproxy.model.workload import Container
from criproxy.placement.events import Event
from criproxy.placement.policies.api import Policy

_AS_BEFORE = "memory from where it came before"


@dataclass(frozen=True, slots=True)
class Update:
    """A container that exists in the runtime and needs another place.

    It has the final grant of the container. Which CPUs it may get at the moment of sending depends on the containers
    that have left theirs by then, and on later decisions: the controller decides that.
    """

    key: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of the engine for one event."""

    node: Node
    """The state from now on."""
    updates: tuple[Update, ...] = ()
    """Containers that lose CPUs come first, then those that only get some."""
    reasons: tuple[Reason, ...] = ()
    """Why; empty if there was nothing to decide."""
    key: str | None = None
    """The container that the event is about. For a create, the key that holds its place: it differs from the event's
    key if this create repeats one that is in flight or of unknown outcome. Then the place belongs to the earlier one:
    confirm with this key, and report a failure with the event's own key (which releases nothing)."""

    faults: tuple[str, ...] = ()
    """A sentence for each answer of a policy that was invalid and not used; see `placement.checked_policy`."""
    in_bypass: bool = False
    """Whether it was made during an automatic bypass, without asking the policy."""
    asked: tuple[Node, Container] | None = None
    """Of a create: the node as the policy saw it, and the container; None if the policy did not choose the CPUs."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The texts of the reasons."""
        return tuple(reason.text for reason in self.reasons)

    @property
    def grant(self) -> Grant | None:
        """The grant of the container that the event is about; None if it has none or the policy leaves it alone."""
        return None if self.key is None else self.node.grants.get(self.key)

    def with_node(self, after: Node, before: Node) -> "Decision":
        """Return the decision that leads from the node *before* to *after*; the same object if it does so already."""
        return self if after is self.node else replace(self, node=after, updates=updates_between(before, after))

    def moving(self, before: Node) -> tuple[Update, ...]:
        """Return the updates that change CPUs or memory from what they are on the node *before*.

        The others only tell the name of a pool, or a quota.
        """

        def moves(update: Update) -> bool:
            had = before.grants.get(update.key)
            return had is None or (had.cpus, had.mems) != (update.grant.cpus, update.grant.mems)

        return tuple(update for update in self.updates if moves(update))


@dataclass(frozen=True, slots=True)
class Step:
    """One event and its result."""

    event: Event
    before: Node
    result: Decision | Exception
    took_s: float
    at_s: float
    """When, in seconds since the epoch."""
    policy: Policy | None
    """The policy that was asked; None during an automatic bypass."""


def updates_between(
    before: Node, after: Node, arrived: str | None = None, *, placed: bool = False
) -> tuple[Update, ...]:
    """Return the containers whose grant in *after* differs from *before*; those that lose CPUs first, then by key.

    Args:
        before: the state whose layout was already sent.
        after: the state to reach. Containers without a runtime id, new ones and removed ones are not updated.
        arrived: the key of a container that just got its id; it is compared with its create message.
        placed: whether to update containers that have a grant only in *after*: they could run on any CPU before.
    """
    losing, others = list[Update](), list[Update]()
    # Most containers share one pool, so most comparisons are of the same two objects.
    compared: dict[tuple[CpuSet, CpuSet], tuple[bool, bool]] = {}
    earlier, grants, containers = before.grants, after.grants, after.containers
    for key in [arrived] if arrived else sorted(changed_keys(earlier, grants)):
        new = grants.get(key)
        if new is None or not containers[key].has_id:
            continue
        old = _as_sent(after, key) if key == arrived else earlier.get(key)
        if old is new:
            continue
        if old is None:
            if placed:
                losing.append(Update(key, new))
            continue
        pair = old.cpus, new.cpus
        if pair not in compared:
            compared[pair] = not old.cpus <= new.cpus, old.cpus != new.cpus
        loses, differs = compared[pair]
        if differs or old != new:
            (losing if loses else others).append(Update(key, new))
    return (*losing, *others)


def _as_sent(node: Node, key: str) -> Grant | None:
    """Return the grant in its create message, if it differs from the present one."""
    applied, grant = node.applied.get(key), node.grants[key]
    if applied is None or applied == granted(grant):
        return grant
    return Grant(applied.cpus, applied.mems, grant.exclusive & applied.cpus)


def with_memory_as_before(node: Node, grants: Mapping[str, Grant], key: str) -> Mapping[str, Grant]:
    """Return new *grants*, made from those of *node* for *key*, with all memory where it was.

    For events that add or remove no container: the memory of an unplaced container stays where the kernel put it.
    """
    before = node.grants
    nowhere = Grant(frozenset(), frozenset())
    changed = {*changed_keys(before, grants), key}
    kept = {each: grants[each].with_memory_of(before.get(each, nowhere)) for each in changed if each in grants}
    moved = {each: grant for each, grant in kept.items() if grant is not grants[each]}
    return {**grants, **moved} if moved else grants


def reasons_with_memory_as_before(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the *reasons* with those about memory replaced: it stays."""
    return tuple(Reason(each.key, _AS_BEFORE) if isinstance(each.text, AboutMemory) else each for each in reasons)


def target(node: Node, key: str, held: CpuSet) -> Applied | None:
    """Return what to set for the container *key* now; None if it has to wait for others or has its grant.

    *held* are the CPUs on which others may be running, but which they must leave.

    A container that only gets CPUs waits until all of them are free. One that must leave some does so at once: it moves
    to the part of its grant that is free or that it already has or, if that is empty, to the CPUs that are not
    exclusive: preferably to those that no other container has to leave; if there are none, to all of them. Otherwise
    containers that swap CPUs would wait for each other for ever.

    A quota is restored at once, and lifted as soon as the container runs only on its exclusive CPUs, or on those of its
    grant if it shares them.
    """
    grant, applied = node.grants[key], node.applied.get(key)
    if in_place(grant, applied):
        return None
    has = applied.cpus if applied else NO_CPUS
    free = grant.cpus - (held - has)
    if free != grant.cpus and applied is not None and applied.cpus <= grant.cpus:
        # Its quota does not have to wait, nor what its classes set.
        wanted = replace(granted(grant), cpus=applied.cpus, mems=applied.mems, lifted=_lifted(grant, applied.cpus))
    else:
        cpus = free or node.shared_cpus - held - (has - grant.cpus) or node.shared_cpus
        wanted = replace(granted(grant), cpus=cpus, lifted=_lifted(grant, cpus))
    wanted = _one_by_one(wanted, applied)
    return wanted if wanted.cpus and wanted != applied else None


def _one_by_one(wanted: Applied, has: Applied | None) -> Applied:
    """Return *wanted* without a weight while the container is idle, or may be: the kernel refuses it until then."""
    if wanted.cpu_idle != "0" or (has and has.cpu_idle == "0"):
        return wanted
    return replace(wanted, cpu_weight=has.cpu_weight if has else None)


def _lifted(grant: Grant, cpus: CpuSet) -> bool:
    """Whether the quota of a container is lifted while it is on *cpus*, on the way to its *grant*."""
    return grant.quota is CpuQuota.LIFTED and cpus <= (grant.cpus if grant.shares else grant.exclusive)
