"""`burst: idle` of classes: containers that share CPUs have no CFS quota while CPUs near them are idle.

A whole CPU of a NUMA node is idle by booking, not by use: it is neither exclusive nor kept nor reserved, and the
requests of the containers that share CPUs there leave it. So a quota changes only when containers come, go, or get
another size, and comes back in the same step as the container that takes the last idle CPU. Who owns all of its CPUs is
left to ``cpuQuota``: its limit is no less than these, or it shares them with its siblings.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import AboutQuota, CpuQuota, Grant, Reason
from criproxy.model.node import Explained, Node, changed_keys, with_changes
from criproxy.model.text.amounts import are, counted
from criproxy.model.workload import Container
from criproxy.placement.alloc.booked_cpus import idle_cpus, numa_nodes
from criproxy.placement.decision import Decision, Update
from criproxy.placement.events import Event, NodeEvent
from criproxy.placement.options.class_rules import classes_of, named_part
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.rules.attributes.quota import honest, owns_all, quota_reasons, restored

_NO_CLASSES = frozenset[str]()


class _IdleBurst:
    """What the classes of a policy file say about the quotas of one node."""

    def __init__(self, node: Node, policy: Policy) -> None:
        self._node = node
        self._options = options_of(policy)
        self._classes = idle_bursts(policy)
        self._known: dict[CpuSet, tuple[int, Collection[int]]] = {}

    @property
    def _reserved(self) -> CpuSet:
        return self._options.reserved(self._node.topology)

    @cached_property
    def idle(self) -> Mapping[int, int]:
        """How many CPUs are idle, by NUMA node."""
        return idle_cpus(self._node, self._reserved)

    @property
    def nodes(self) -> set[int]:
        """The NUMA nodes with idle CPUs."""
        return {number for number, count in self.idle.items() if count}

    def concerns(self, grant: Grant) -> bool:
        """Whether a class of the container with *grant* has ``burst: idle``."""
        return bool(self._classes) and named_part(grant.controls.class_of("cpu")) in self._classes

    def judged(self, container: Container, grant: Grant) -> Grant:
        """Return *grant* with the quota as it is to be; the same object if it is that already."""
        if owns_all(grant) or not self.concerns(grant):
            return honest(grant)
        quota = CpuQuota.LIFTED if self._near(grant.cpus)[0] else restored(grant)
        if grant.quota is quota or container.asked_quota is None or (container.stays and container.has_id):
            return grant
        return replace(grant, quota=quota)

    def is_why(self, old: Grant | None, new: Grant) -> bool:
        """Whether ``burst: idle``, and not who owns CPUs, decides about the quota in *new*, or did in *old*."""
        had = old is not None and old.quota is CpuQuota.LIFTED and old.shares
        return not owns_all(new) and (had or self.concerns(new))

    def text(self, container: Container, grant: Grant) -> str:
        """Return why *container*, which shares CPUs, has a quota or none."""
        if not self.concerns(grant):
            return f"no class of {container.title} has burst: idle any more"
        count, where = self._near(grant.cpus)
        nodes = f"NUMA node{'s' * (len(where) != 1)} {', '.join(map(str, sorted(where)))}"
        idle = f"{counted(count, 'CPU') if count else 'no CPU'} of {nodes} {are(count or 1)} idle"
        name = named_part(grant.controls.class_of("cpu"))
        return f"{idle if where else 'no CPU is idle'}, and {container.title} has the class {name} with burst: idle"

    def _near(self, cpus: CpuSet) -> tuple[int, Collection[int]]:
        """Return how many CPUs are idle where a container on *cpus* may run, and on which NUMA nodes it may."""
        if (known := self._known.get(cpus)) is None:
            where = numa_nodes(self._node, self._reserved, cpus)
            known = self._known[cpus] = sum(self.idle.get(number, 0) for number in where), where
        return known


def idle_bursts(policy: Policy) -> frozenset[str]:
    """Return the classes with ``burst: idle``; none under the policy none."""
    classes = None if isinstance(policy, NonePolicy) else classes_of(policy)
    return classes.desired_parts().idle_bursts if classes else _NO_CLASSES


def with_quota(before: Node, after: Node, container: Container, policy: Policy) -> Explained:
    """Return the node *after* with the quota of *container*, which was placed, as its class wants it, and why.

    Its other new attributes are known.
    """
    old, grant, asked = before.grants.get(container.key), after.grants.get(container.key), container.asked_quota
    if grant is None:
        return after, ()
    burst = _IdleBurst(after, policy)
    made = burst.judged(container, grant)
    if made is not grant:
        after = after.replace(grants=with_changes(after.grants, {container.key: old if old == made else made}))
    if asked is None or not burst.is_why(old, made):
        return after, tuple(Reason(container.key, each) for each in quota_reasons(container, old, made))
    if old is not None and old.quota is made.quota:
        return after, ()
    effect = "is lifted" if made.quota is CpuQuota.LIFTED else "is in force"
    text = f"{burst.text(container, made)}: its CFS quota, {asked.quota_us} of {asked.period_us} µs, {effect}"
    return after, (Reason(container.key, AboutQuota(text)),)


def lifted_while_idle(before: Node, event: Event, decision: Decision, policy: Policy) -> Decision:
    """Return the *decision* about *event* with all quotas that follow from ``burst: idle``, and why they change.

    Args:
        before: the node before; an earlier call has returned it.
        event: one about the whole node may change classes and the machine.
        decision: made from *before*.
        policy: has the classes.
    """
    after, everything = decision.node, isinstance(event, NodeEvent)
    if after is before or after.released or not (everything or idle_bursts(policy)):
        return decision
    then, now = _IdleBurst(before, policy), _IdleBurst(after, policy)
    keys = changed_keys(before.grants, after.grants)
    if everything or then.nodes != now.nodes:
        keys = {*keys, *before.controlled_keys, *after.controlled_keys}
    told = {each.key for each in decision.reasons if isinstance(each.text, AboutQuota)}
    found, reasons = dict[str, Grant](), list[Reason]()
    for key in keys:
        if (grant := after.grants.get(key)) is None or (container := after.containers.get(key)) is None:
            continue
        old, made = before.grants.get(key), now.judged(container, grant)
        if made is not grant:
            found[key] = old if old is not None and old == made else made
        if old and old.quota is not made.quota and key not in told and now.is_why(old, made):
            reasons.append(Reason(key, AboutQuota(now.text(container, made))))
    if not found and not reasons:
        return decision
    after = after.replace(grants=with_changes(after.grants, found)) if found else after
    updates = _updates(before, after, decision.updates, found)
    return replace(decision, node=after, updates=updates, reasons=(*decision.reasons, *reasons))


def _updates(before: Node, after: Node, updates: Collection[Update], found: Mapping[str, Grant]) -> tuple[Update, ...]:
    """Return the *updates* that are needed *after* the grants *found* were made: some more, and some no more."""
    grants, earlier = after.grants, before.grants
    still = [Update(each.key, grants[each.key]) for each in updates if earlier.get(each.key) is not grants[each.key]]
    known = {each.key for each in still}
    new = (key for key in sorted(found.keys() - known) if after.containers[key].has_id)
    return (*still, *(Update(key, grants[key]) for key in new if earlier.get(key) is not grants[key]))
