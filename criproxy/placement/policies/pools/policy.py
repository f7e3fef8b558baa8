"""The pool in which each pod runs: by the name in its annotation, else by its namespace."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, interned, numbered
from criproxy.model.grant import NO_CPUS, Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, with_changes
from criproxy.model.text.amounts import counted
from criproxy.model.workload import Container
from criproxy.placement.alloc.memory.place_memory import NEAR, place_memory, return_memory
from criproxy.placement.alloc.rank import Candidate, Candidates, Criterion, Row, Unit, compared, ranked
from criproxy.placement.options.annotation_keys import matches_one
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.pod_wishes import memory_wish
from criproxy.placement.policies.parts import no_shared_cpu
from criproxy.placement.policies.pools.options import ANNOTATION, Alone, PoolsOptions
from criproxy.placement.policies.pools.plan import DEFAULT, RESERVED, Instance, Plan, make_plan

OF = "pools"
Choice = tuple[Instance, str]
"""A pool, and in half a sentence why this one."""


class PoolsPolicy:
    """Fixed pools of CPUs, and every pod in one of them."""

    def __init__(self, options: PoolsOptions) -> None:
        self.options = options

    def pools(self, topology: Topology) -> Mapping[str, tuple[Grant, ...]]:
        """The CPUs of each pool and the NUMA nodes that these are of, by the pool's name in the policy file."""
        plan = self._plan(self.options.usable(topology))
        found: dict[str, tuple[Grant, ...]] = {}
        for instance in plan.instances:
            grant = Grant(instance.cpus, topology.nodes_of(instance.cpus) & topology.mems, pool=instance.name)
            found[instance.kind.name] = (*found.get(instance.kind.name, ()), grant)
        return found

    def place(self, node: Node, container: Container) -> Change:
        """The CPUs of its pod's pool, and where safe the memory next to them."""
        node = self.options.within(node)
        plan = self._plan(node.topology)
        wishes = Wishes(node, container, self.options)
        instance, why = self._choose(plan, node, wishes)
        alone, had = instance.kind.exclusive, node.own_cpus(container.key)
        cpus = instance.cpus
        if not alone:
            cpus = self._shared(plan, instance, node.topology, node.exclusive_cpus - had)
            if not cpus:
                raise no_shared_cpu(node.topology, container)
        grant = Grant(interned(cpus), NO_CPUS, cpus if alone else NO_CPUS, instance.name)
        grants = {container.key: grant}
        if grant.exclusive != had:
            grants = self._with_sharers(plan, node, grants)
        wish = memory_wish(wishes, NEAR, pinned=self.options.pin_memory)
        change = place_memory(node, grants, container, node.topology.nodes_of(instance.cpus), wish)
        verb = "gets exclusive" if alone else "shares"
        reason = f"{container.title} {verb} {numbered('CPU', cpus)} of {instance.name}: {why}"
        notes = wishes.notes() + (() if alone else _overbooked(instance, node, container))
        return Change(change.grants, (reason, *change.reasons, *notes))

    def release(self, node: Node, left: Grant) -> Change:
        """Shared containers get its exclusive CPUs back."""
        node = self.options.within(node)
        grants = self._with_sharers(self._plan(node.topology), node, {}) if left.exclusive else {}
        return return_memory(node, grants)

    def empty_pools(self, node: Node) -> Mapping[str, CpuSet]:
        """Pools whose containers have not come, or are gone."""
        used = {grant.pool for grant in node.grants.values()}
        plan = self._plan(self.options.within(node).topology)
        return {each.name: each.cpus for each in plan.instances if each.name not in used and each.cpus}

    def _plan(self, topology: Topology) -> Plan:
        """The pools of this machine."""
        return make_plan(self.options.pools, self.options.reserved(topology), topology)

    def _choose(self, plan: Plan, node: Node, wishes: Wishes) -> Choice:
        """The pool of a container."""
        kind, why = self._of_kind(plan, wishes)
        if kind[0].kind.exclusive:
            alone = Alone.of(node, wishes.container, self.options.reserved(node.topology))
            return _choose_alone(alone, kind, wishes.container, why)
        return _choose(plan, Among.of(kind, node, wishes.container), why)

    def _of_kind(self, plan: Plan, wishes: Wishes) -> tuple[Sequence[Instance], str]:
        """The pools of the kind that a container is to run in, and why in that."""
        patterns = ("kube-system", *self.options.reserved_pool_namespaces)
        system = matches_one(wishes.container.namespace, patterns)
        named = wishes.text(ANNOTATION)
        if named == RESERVED and not system and not self.options.annotations.allow:
            text = f"its namespace may not use the pool {RESERVED!r}: annotations.allow does not permit it"
            wishes.ignored.append(text)
            named = None
        if named and named in plan.by_kind:
            return plan.by_kind[named], "its pod names that pool"
        if named:
            return plan.by_kind[DEFAULT], f"there is no pool {named!r}"
        if system:
            return plan.by_kind[RESERVED], "it is for its namespace"
        return plan.by_kind[DEFAULT], "its pod names no pool"

    def candidates(self, node: Node, container: Container) -> Candidates:
        """The pools of the kind that its pod names.

        Raises:
            BadAnnotation: its pod asks for something in a way that cannot be understood.
        """
        node = self.options.within(node)
        plan, wishes = self._plan(node.topology), Wishes(node, container, self.options)
        kind, why = self._of_kind(plan, wishes)
        if kind[0].kind.exclusive:
            return alone_compared(Alone.of(node, container, self.options.reserved(node.topology)), kind, why)
        if node.topology.cpus <= node.exclusive_cpus - node.own_cpus(container.key):
            return compared(OF, (), [Row(each.name, lacks="a CPU that is not exclusive") for each in kind], note=why)
        among = Among.of(kind, node, container)
        chosen, _ = _choose(plan, among, why)
        return shared_compared(among, chosen, why)

    def _shared(self, plan: Plan, instance: Instance, topology: Topology, owned: CpuSet) -> CpuSet:
        """The CPUs of the containers in a pool, without those that are exclusive since an earlier policy.

        Empty where all CPUs are exclusive.
        """
        if not self.options.pin_cpu:
            return topology.cpus - owned
        return (instance.cpus - owned) or (plan.default.cpus - owned) or (topology.cpus - owned)

    def _with_sharers(self, plan: Plan, node: Node, grants: dict[str, Grant]) -> dict[str, Grant]:
        """*grants*, which are new, and those of shared containers that then are not on the shared CPUs of their pool.

        Containers of an earlier policy, which are in no pool, share the default one from then on. Where all CPUs are
        exclusive since an earlier policy, shared containers are elsewhere and stay there.
        """
        after = node.replace(grants=with_changes(node.grants, grants)) if grants else node
        owned = after.exclusive_cpus
        moved: dict[tuple[CpuSet, CpuSet, CpuSet, str], Grant | None] = {}
        for key, grant in after.grants.items() if not node.topology.cpus <= owned else ():
            if grant.exclusive and not grant.shares:
                continue
            if grant.exclusive:  # since an earlier policy it has exclusive CPUs beside the shared ones
                cpus = (grant.cpus & grant.exclusive) | self._shared(plan, plan.default, node.topology, owned)
                if cpus != grant.cpus:
                    grants[key] = replace(grant, cpus=cpus)
                continue
            place = grant.cpus, grant.mems, grant.home_mems, grant.pool
            if place not in moved:
                instance = plan.by_name.get(grant.pool, plan.default)
                cpus = interned(self._shared(plan, instance, node.topology, owned))
                there = Grant(cpus, grant.mems, NO_CPUS, instance.name, home_mems=grant.home_mems)
                moved[place] = there if cpus != grant.cpus else None
            if new := moved[place]:
                grants[key] = new
        return grants


def _choose_alone(alone: Alone, kind: Sequence[Instance], container: Container, why: str) -> Choice:
    """A pool for the container alone: the one that it has, else one next to those of its pod, else the first.

    Raises:
        NotEnough: none of them is free.
    """
    if order := _ranked_alone(alone, kind):
        return kind[order[0].index], why
    name = kind[0].kind.name
    which = "; ".join(f"{each.name} has {numbered('CPU', each.cpus)}" for each in kind[:8])
    asks = f"container {container.title} asks for a pool {name!r} of its own"
    raise NotEnough(f"{asks}, but none is free: {which}")


def _choose(plan: Plan, among: "Among", why: str) -> Choice:
    """A pool of a kind: where its pod is, else where it is, else the next to be filled, else the default pool."""
    kind, order = among.kind, among.ranked(among.kind)
    elsewhere = among.had is None and among.container.pod in among.pods.get(plan.default.name, ())
    if order:
        chosen, (pod, there, *_) = kind[order[0].index], order[0].criteria
        if not pod.value:
            return chosen, f"{why}, and other containers of its pod are there"
        if not there.value:
            return chosen, f"{why}, and it is already there"
        if not elsewhere:
            pods = len(among.pods.get(chosen.name, ()))
            filling = _FILLING[chosen.kind.fill_order].format(pods)
            return chosen, f"{why}, and {filling}" if len(kind) > 1 else why
    most, name = kind[0].kind.max_pods, kind[0].kind.name
    if elsewhere:
        full = "other containers of its pod are there"
    else:
        full = f"but {name!r} is for no pod" if most < 0 else f"but every pool {name!r} has the {most} pods it may have"
    return plan.default, f"{why}, {full}"


_FILLING = {
    "Balanced": "it has the fewest pods, {}",
    "Packed": "it has the most pods of those with room, {}",
    "FirstFree": "it is the first with room",
}


def _overbooked(instance: Instance, node: Node, container: Container) -> tuple[str, ...]:
    """A sentence if the containers of a pool ask for more than it has."""
    keys = (key for key, grant in node.grants.items() if grant.pool == instance.name and key != container.key)
    asked = sum(node.containers[key].cpu_milli for key in keys if key in node.containers) + container.cpu_milli
    if asked <= len(instance.cpus) * 1000:
        return ()
    has = counted(len(instance.cpus), "CPU")
    return (f"{instance.name} is overbooked: its containers ask for {asked}m, and it has {has}",)


@dataclass(frozen=True, slots=True)
class Among:
    """The search of a container for a pool among those of a kind, which pods share."""

    kind: Sequence[Instance]
    container: Container
    had: Grant | None
    """Its grant so far."""
    pods: Mapping[str, Collection[str]]
    """Those in each pool, by its name; the container itself does not count."""

    @classmethod
    def of(cls, kind: Sequence[Instance], node: Node, container: Container) -> Self:
        """The search of *container* on *node*."""
        pods: dict[str, set[str]] = {}
        for key, grant in node.grants.items():
            if grant.pool and key != container.key and key in node.containers:
                pods.setdefault(grant.pool, set()).add(node.containers[key].pod)
        return cls(kind, container, node.grants.get(container.key), pods)

    def has_room(self, instance: Instance) -> bool:
        """Whether the pod of the container may run in a pool."""
        most, there = instance.kind.max_pods, self.pods.get(instance.name, ())
        return most == 0 or self.container.pod in there or len(there) < most

    def ranked(self, instances: Sequence[Instance], chosen: Instance | None = None) -> list[Candidate]:
        """Those with room, and the *chosen* one, best first."""
        fitting = [index for index, each in enumerate(instances) if each is chosen or self.has_room(each)]
        return ranked(self._candidate(index, instances[index]) for index in fitting)

    def _candidate(self, index: int, instance: Instance) -> Candidate:
        """A pool of the kind; the default pool, where none of the kind was taken, comes after these."""
        there = self.pods.get(instance.name, ())
        filling = {
            "Balanced": [Criterion("it has fewer pods", len(there), Unit.FEWER)],
            "Packed": [Criterion("it has more pods", -len(there), Unit.MORE)],
        }
        criteria = (
            Criterion("other containers of its pod are there", int(self.container.pod not in there)),
            Criterion("it is already there", int(self.had is None or self.had.pool != instance.name)),
            *filling.get(self.kind[0].kind.fill_order, ()),
        )
        return Candidate(index, instance.name, criteria)


def shared_compared(among: Among, chosen: Instance, why: str) -> Candidates:
    """The pools of a kind that pods share, and the default pool where none of them was taken."""
    instances = [*among.kind, *([] if chosen in among.kind else [chosen])]
    order = among.ranked(instances, chosen)
    fitting = {candidate.index for candidate in order}
    full = [Row(each.name, lacks=_full(each)) for index, each in enumerate(instances) if index not in fitting]
    return compared(OF, order, full, note=why)


def alone_compared(alone: Alone, kind: Sequence[Instance], why: str) -> Candidates:
    """The pools of a kind each of which is for one container alone."""
    order = _ranked_alone(alone, kind)
    taken = [Row(each.name, lacks=_taken(alone, each)) for each in kind if not alone.may_have(each)]
    return compared(OF, order, taken, note=why)


def _ranked_alone(alone: Alone, kind: Sequence[Instance]) -> list[Candidate]:
    """The pools of a kind that a container may have alone: its own, then those next to its pod, then all others."""
    fitting = ((index, each) for index, each in enumerate(kind) if alone.may_have(each))
    return ranked(Candidate(index, each.name, alone.criteria(each)) for index, each in fitting)


def _full(instance: Instance) -> str:
    most = instance.kind.max_pods
    return f"room for another pod: it has {most}, as many as maxPods allows" if most > 0 else "room: it is for no pod"


def _taken(alone: Alone, instance: Instance) -> str:
    if taken := instance.cpus & alone.taken:
        return numbered("CPU", taken)
    return "a CPU for shared containers"
