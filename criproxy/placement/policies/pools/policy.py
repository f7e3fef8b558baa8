"""The pool in which each pod runs: by the name in its annotation, else by its namespace."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, interned, numbered
from criproxy.model.grant import NO_CPUS, Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, with_grants
from criproxy.model.text.amounts import counted
from criproxy.model.workload import Container
from criproxy.placement.alloc.memory.memory import MemoryWish, place_memory, return_memory
from criproxy.placement.alloc.rank import Candidate, Candidates, Criterion, Row, Unit, compared, ranked
from criproxy.placement.options.annotations import Wishes
from criproxy.placement.options.pod_wishes import memory_wish
from criproxy.placement.policies.parts import no_shared_cpu
from criproxy.placement.policies.pools.options import ANNOTATION, Alone, PoolsOptions, has_room, pods_by_pool
from criproxy.placement.policies.pools.plan import DEFAULT, RESERVED, Instance, Plan, make_plan

OF = "pools"
NEAR = MemoryWish(usual=frozenset())
"""The memory of the NUMA nodes of a pool's CPUs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A pool, and in half a sentence why this one."""

    instance: Instance
    why: str


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
        wishes = Wishes.by(self.options, node, container)
        choice = self._choose(plan, node, wishes)
        alone, had = choice.instance.kind.exclusive, node.own_cpus(container.key)
        cpus = choice.instance.cpus
        if not alone:
            cpus = self._shared(plan, choice.instance, node.topology, node.exclusive_cpus - had)
            if not cpus:
                raise no_shared_cpu(node.topology, container)
        grant = Grant(interned(cpus), NO_CPUS, cpus if alone else NO_CPUS, choice.instance.name)
        grants = {container.key: grant}
        if grant.exclusive != had:
            grants = self._with_sharers(plan, node, grants)
        wish = memory_wish(wishes, NEAR, pinned=self.options.pin_memory)
        change = place_memory(node, grants, container, node.topology.nodes_of(choice.instance.cpus), wish)
        verb = "gets exclusive" if alone else "shares"
        reason = f"{container.title} {verb} {numbered('CPU', cpus)} of {choice.instance.name}: {choice.why}"
        notes = wishes.notes() + (() if alone else _overbooked(choice.instance, node, container))
        return Change(change.grants, (reason, *change.reasons, *notes))

    def release(self, node: Node, left: Grant) -> Change:
        """Shared containers get its exclusive CPUs back."""
        node = self.options.within(node)
        grants = self._with_sharers(self._plan(node.topology), node, {}) if left.exclusive else {}
        return return_memory(node, grants)

    def _plan(self, topology: Topology) -> Plan:
        """The pools of this machine."""
        return make_plan(self.options.pools, self.options.reserved(topology), topology)

    def _choose(self, plan: Plan, node: Node, wishes: Wishes) -> Choice:
        """The pool of a container."""
        kind, why = self._of_kind(plan, wishes)
        if kind[0].kind.exclusive:
            return self._free_one(kind, node, wishes.container, why)
        return _choose(plan, kind, node, wishes.container, why)

    def _of_kind(self, plan: Plan, wishes: Wishes) -> tuple[Sequence[Instance], str]:
        """The pools of the kind that a container is to run in, and why in that."""
        name, why = self._kind(wishes)
        if name not in plan.by_kind:
            return plan.by_kind[DEFAULT], f"there is no pool {name!r}"
        return plan.by_kind[name], why

    def candidates(self, node: Node, container: Container) -> Candidates:
        """The pools of the kind that its pod names.

        Raises:
            BadAnnotation: its pod asks for something in a way that cannot be understood.
        """
        node = self.options.within(node)
        plan, wishes = self._plan(node.topology), Wishes.by(self.options, node, container)
        kind, why = self._of_kind(plan, wishes)
        if kind[0].kind.exclusive:
            return alone_compared(Alone.of(node, container, self.options.reserved(node.topology)), kind, why)
        if node.topology.cpus <= node.exclusive_cpus - node.own_cpus(container.key):
            return all_exclusive(kind, why)
        chosen = _choose(plan, kind, node, container, why).instance
        return shared_compared(Among(kind, node, container, pods_by_pool(node, container)), chosen, why)

    def _kind(self, wishes: Wishes) -> tuple[str, str]:
        """The name of the pool that a container is to run in, and why."""
        patterns = ("kube-system", *self.options.reserved_pool_namespaces)
        system = any(fnmatchcase(wishes.container.namespace, each) for each in patterns)
        named = wishes.text(ANNOTATION)
        if named == RESERVED and not system and not self.options.annotations.allow:
            text = f"its namespace may not use the pool {RESERVED!r}: annotations.allow does not permit it"
            wishes.ignored.append(text)
            named = None
        if named:
            return named, "its pod names that pool"
        if system:
            return RESERVED, "it is for its namespace"
        return DEFAULT, "its pod names no pool"

    def _free_one(self, kind: Sequence[Instance], node: Node, container: Container, why: str) -> Choice:
        """A pool for the container alone: the one that it has, else one next to those of its pod, else the first.

        Raises:
            NotEnough: none of them is free.
        """
        alone = Alone.of(node, container, self.options.reserved(node.topology))
        free = [index for index, instance in enumerate(kind) if alone.may_have(instance)]
        if not free:
            name = kind[0].kind.name
            which = "; ".join(f"{each.name} has {numbered('CPU', each.cpus)}" for each in kind[:8])
            asks = f"container {container.title} asks for a pool {name!r} of its own"
            raise NotEnough(f"{asks}, but none is free: {which}")
        return Choice(kind[min(free, key=lambda index: (*alone.order(kind[index]), index))], why)

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
        after = node.replace(grants=with_grants(node.grants, grants)) if grants else node
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


def _choose(plan: Plan, kind: Sequence[Instance], node: Node, container: Container, why: str) -> Choice:
    """A pool of a kind: where its pod is, else where there is room, else the default pool."""
    pods, old = pods_by_pool(node, container), node.grants.get(container.key)
    room = [index for index, instance in enumerate(kind) if has_room(instance, pods, container)]
    for index in room:
        if container.pod in pods.get(kind[index].name, ()):
            return Choice(kind[index], f"{why}, and other containers of its pod are there")
    for index in room:
        if old and kind[index].name == old.pool:
            return Choice(kind[index], f"{why}, and it is already there")
    most, name = kind[0].kind.max_pods, kind[0].kind.name
    elsewhere = old is None and container.pod in pods.get(plan.default.name, ())
    if room and not elsewhere:
        return _by_order(kind, room, pods, why)
    if elsewhere:
        full = "other containers of its pod are there"
    else:
        full = f"but {name!r} is for no pod" if most < 0 else f"but every pool {name!r} has the {most} pods it may have"
    return Choice(plan.default, f"{why}, {full}")


def _by_order(kind: Sequence[Instance], room: Sequence[int], pods: Mapping[str, Collection[str]], why: str) -> Choice:
    """The next one to be filled of those that have *room*."""
    count = {index: len(pods.get(kind[index].name, ())) for index in room}
    order = kind[0].kind.fill_order
    index, chosen = room[0], "it is the first with room"
    if order == "Balanced":
        index = min(room, key=lambda index: (count[index], index))
        chosen = f"it has the fewest pods, {count[index]}"
    elif order == "Packed":
        index = min(room, key=lambda index: (-count[index], index))
        chosen = f"it has the most pods of those with room, {count[index]}"
    return Choice(kind[index], f"{why}, and {chosen}" if len(kind) > 1 else why)


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
    node: Node
    container: Container
    pods: Mapping[str, Collection[str]]
    """Those in each pool, by its name."""

    def candidate(self, index: int, instance: Instance) -> Candidate:
        """A pool of the kind; the default pool, where none of the kind was taken, comes after these."""
        old = self.node.grants.get(self.container.key)
        there = self.pods.get(instance.name, ())
        return Candidate(
            index,
            instance.name,
            (
                Criterion("other containers of its pod are there", int(self.container.pod not in there)),
                Criterion("it is already there", int(old is None or old.pool != instance.name)),
                *self._filling(len(there)),
            ),
        )

    def _filling(self, pods: int) -> Sequence[Criterion]:
        match self.kind[0].kind.fill_order:
            case "Balanced":
                return (Criterion("it has fewer pods", pods, Unit.FEWER),)
            case "Packed":
                return (Criterion("it has more pods", -pods, Unit.MORE),)
            case _:
                return ()


def shared_compared(among: Among, chosen: Instance, why: str) -> Candidates:
    """The pools of a kind that pods share, and the default pool where none of them was taken."""
    instances = list(among.kind) + ([] if chosen in among.kind else [chosen])
    room = [each is chosen or has_room(each, among.pods, among.container) for each in instances]
    order = ranked(among.candidate(index, each) for index, each in enumerate(instances) if room[index])
    full = [Row(each.name, lacks=_full(each)) for each, has in zip(instances, room, strict=True) if not has]
    return compared(OF, order, full, note=why)


def all_exclusive(kind: Sequence[Instance], why: str) -> Candidates:
    """The pools of a kind that pods share, where all CPUs are exclusive since an earlier policy."""
    return compared(OF, (), [Row(each.name, lacks="a CPU that is not exclusive") for each in kind], note=why)


def alone_compared(alone: Alone, kind: Sequence[Instance], why: str) -> Candidates:
    """The pools of a kind each of which is for one container alone."""
    order = ranked(_own(alone, index, each) for index, each in enumerate(kind) if alone.may_have(each))
    taken = [Row(each.name, lacks=_taken(alone, each)) for each in kind if not alone.may_have(each)]
    return compared(OF, order, taken, note=why)


def _own(alone: Alone, index: int, instance: Instance) -> Candidate:
    other, far = alone.order(instance)
    criteria = Criterion("it is already there", int(other)), Criterion("it is next to its pod", int(far))
    return Candidate(index, instance.name, criteria)


def _full(instance: Instance) -> str:
    most = instance.kind.max_pods
    return f"room for another pod: it has {most}, as many as maxPods allows" if most > 0 else "room: it is for no pod"


def _taken(alone: Alone, instance: Instance) -> str:
    if taken := instance.cpus & alone.taken:
        return numbered("CPU", taken)
    return "a CPU for shared containers"
