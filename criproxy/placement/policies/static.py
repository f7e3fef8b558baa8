"""The policy ``static``: whole CPUs to Guaranteed containers that ask for them, the rest is shared.

The rule is that of the kubelet's CPU manager with its policy of the same name: a container of a Guaranteed pod that
asks for a whole number of CPUs gets them exclusively, all others run on the CPUs that are not exclusive, reserved CPUs
included. Its options are those of that manager, without its refusals, and those of CRI-RM's static and static-plus.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import Field

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, interned, numbered
from criproxy.model.grant import NO_CPUS, Change, Grant, alike
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, with_changes
from criproxy.model.text.amounts import counted, only_are
from criproxy.model.workload import Container
from criproxy.placement.alloc.cpus import Taste, surroundings, take_cpus
from criproxy.placement.alloc.memory.place_memory import NEAR, place_memory, return_memory
from criproxy.placement.alloc.near import resize_cpus, take_beside, whole_cores
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.pod_wishes import hints_of, near_words, nodes_of
from criproxy.placement.options.policy_options import Exclusive, Misfit, Options
from criproxy.placement.policies.api import NOTHING_FREE, Entry, Free
from criproxy.placement.policies.parts import by_node, no_shared_cpu, own_kept, parts_compared, unmoved

_EXCLUSIVE = (
    ("distribute_cpus_across_cores", "full_pcpus_only"),
    ("distribute_cpus_across_cores", "distribute_cpus_across_numa"),
    ("distribute_cpus_across_cores", "prefer_align_cpus_by_uncore_cache"),
    ("distribute_cpus_across_numa", "prefer_align_cpus_by_uncore_cache"),
)
"""Options that exclude each other for the kubelet."""


class StaticOptions(Options):
    """Options of the policy ``static``."""

    exclusive_for: tuple[Literal["Guaranteed", "Burstable"], ...] = ("Guaranteed",)
    """The QoS classes whose containers get exclusive CPUs."""
    shared_remainder: bool = False
    """Whether a container that requests, for example, 2500m gets two exclusive CPUs and shares CPUs for the rest, as in
    static-plus; otherwise, only containers that request a whole number of CPUs get exclusive ones."""
    prefer_isolated_cpus: bool = Field(default=False, alias="preferIsolatedCPUs")
    """Whether isolated CPUs (isolcpus) become exclusive first, and shared containers get them only if there are no
    others. The annotation prefer-isolated-cpus overrides this option for a pod."""
    full_pcpus_only: bool = False
    """Whether exclusive CPUs are whole free cores, even if these cores are farther apart."""
    distribute_cpus_across_numa: bool = Field(default=False, alias="distributeCPUsAcrossNUMA")
    """Whether a container that needs several NUMA nodes gets the same number of exclusive CPUs from each."""
    distribute_cpus_across_cores: bool = Field(default=False, alias="distributeCPUsAcrossCores")
    """Whether a container gets one thread of each core before it gets a second thread of any core."""
    align_by_socket: bool = False
    """Whether it matters more to take all CPUs from one socket than to take them from as few NUMA nodes as possible."""
    prefer_align_cpus_by_uncore_cache: bool = Field(default=False, alias="preferAlignCPUsByUncoreCache")
    """No effect: exclusive CPUs come from as few level 3 caches as possible anyway, unless distributeCPUsAcrossCores is
    on."""
    exclusive: Exclusive = Exclusive()
    """What happens to exclusive CPUs when their container ends."""
    strict_cpu_reservation: bool = Field(default=False, alias="strictCPUReservation")
    """Whether containers stay off reserved CPUs as long as there are other CPUs."""

    def contradictions(self) -> Iterator[Misfit]:
        """Options that exclude each other, as they do for the kubelet."""
        yield from super().contradictions()
        for one, other in _EXCLUSIVE:
            if getattr(self, one) and getattr(self, other):
                names = [str(type(self).model_fields[field].alias) for field in (one, other)]
                yield Misfit((names[1],), f"contradicts {names[0]}: choose one of them")


class _Taken(NamedTuple):
    """The exclusive CPUs for a container."""

    cpus: CpuSet
    source: CpuSet
    """Those among which they were chosen."""
    unmet: list[str]
    """Which options could not be met."""


class StaticPolicy:
    """Exclusive whole CPUs, and one shared pool that is never empty."""

    def __init__(self, options: StaticOptions) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Change:
        """Exclusive CPUs and, where safe, the memory of their NUMA nodes; or the shared pool and all memory."""
        node = self.options.within(node)
        wishes = Wishes(node, container, self.options)
        count, own = self._count(container), _own(node, container)
        if not count:
            shared = interned(self._shared(node.topology, node.exclusive_cpus - own))
            if not shared:
                raise no_shared_cpu(node.topology, container)
            had = node.grants.get(container.key)  # with memory that has not been set, or none
            grant = alike(Grant(shared, NO_CPUS if had and not had.mems else node.topology.mems))
            reason = f"{container.title} shares {numbered('CPU', shared)}: {self._why_shared(container)}"
            pool = None if own else shared  # it gives nothing back
            return Change(self._with_sharers(node, {container.key: grant}, pool), (reason, *wishes.notes()))
        cpus, _, unmet = self._take(node, wishes, own, count)
        mixed = self.options.shared_remainder and container.cpu_milli > count * 1000
        also = self._shared(node.topology, (node.exclusive_cpus - own) | cpus) if mixed else NO_CPUS
        grants = self._with_sharers(node, {container.key: Grant(cpus | also, NO_CPUS, exclusive=cpus)})
        change = place_memory(node, grants, container, node.topology.nodes_of(cpus), NEAR)
        and_shares = f" and shares {numbered('CPU', also)}" if also else ""
        asks = f"it asks for {container.cpu_milli}m" if mixed else f"it asks for {count}"
        what = f"{container.title} gets exclusive {numbered('CPU', cpus)}{and_shares}"
        reason = f"{what}: its pod is {container.qos.value} and {asks}"
        return Change(change.grants, (reason, *change.reasons, *unmet, *wishes.notes()))

    def release(self, node: Node, left: Grant) -> Change:
        """Its exclusive CPUs go back to the shared pool."""
        node = self.options.within(node)
        return return_memory(node, self._with_sharers(node, {}))

    def _count(self, container: Container) -> int:
        """How many exclusive CPUs the container gets; 0 for a shared container."""
        whole, rest = divmod(container.cpu_milli, 1000)
        is_exclusive = container.qos.value in self.options.exclusive_for and (not rest or self.options.shared_remainder)
        return whole if is_exclusive else 0

    def _shared(self, topology: Topology, owned: CpuSet) -> CpuSet:
        """The shared pool; it has isolated or reserved CPUs that are not for it only if no others are left."""
        left = topology.cpus - owned
        usual = left - topology.isolated_cpus if self.options.prefer_isolated_cpus else left
        strict = usual - self.options.reserved(topology) if self.options.strict_cpu_reservation else usual
        return strict or usual or left

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """The parts of the machine from which exclusive CPUs may come; None for a shared container.

        Raises:
            BadAnnotation: its pod asks for something in a way that cannot be understood.
        """
        node = self.options.within(node)
        wishes = Wishes(node, container, self.options)
        count, own = self._count(container), _own(node, container)
        if not count:
            return None
        free, available = self._free(node, own)
        if own:
            return own_kept(own, count - available)
        if count > available:
            return parts_compared(node.topology, free, count, self._taste(node.topology, wishes), available)
        taken = self._take(node, wishes, own, count)
        hints, _ = hints_of(wishes)
        note = f"only parts nearest to its devices on {near_words(hints)} were compared" if hints else ""
        found = parts_compared(node.topology, taken.source, count, self._taste(node.topology, wishes))
        return replace(found, note=note)

    def free(self, node: Node) -> Free:
        """The CPUs that can become exclusive; where all shared ones could, one of them stays shared."""
        cpus, available = self._free(self.options.within(node), NO_CPUS)
        return Free(cpus, available) if available and self.options.exclusive_for else NOTHING_FREE

    def _free(self, node: Node, own: CpuSet) -> tuple[CpuSet, int]:
        """The CPUs that may become exclusive for a container, and how many of them at most."""
        free = (node.shared_cpus | own) - self.options.reserved(node.topology) - (node.watched_cpus - own)
        # Where all shared CPUs could become exclusive, one of them stays shared.
        stays = not self._shared(node.topology, node.exclusive_cpus - own) - free
        return free, max(0, len(free) - stays)

    def _take(self, node: Node, wishes: Wishes, own: CpuSet, count: int) -> _Taken:
        topology, sharing = node.topology, self._shared(node.topology, node.exclusive_cpus - own)
        free, available = self._free(node, own)
        if count > available:
            raise NotEnough(_refusal(node, wishes.container, count, free, available))
        taken = self._choose(node, wishes, own & free, free, count)
        if sharing - taken.cpus:
            return taken
        kept = take_cpus(topology, (free & sharing) - own or free & sharing, 1)
        return self._choose(node, wishes, (own & free) - kept, free - kept, count)

    def _taste(self, topology: Topology, wishes: Wishes) -> Taste:
        """How to choose exclusive CPUs: isolated ones first, or last, or as they come."""
        options, isolated, first = self.options, topology.isolated_cpus, NO_CPUS
        wish = wishes.boolean("prefer-isolated-cpus")
        if isolated and (wish is not None or options.prefer_isolated_cpus):
            first = isolated if wish is not False else topology.cpus - isolated
        across, evenly = options.distribute_cpus_across_cores, options.distribute_cpus_across_numa
        return Taste(first, across_cores=across, evenly=evenly, one_package=options.align_by_socket)

    def _choose(self, node: Node, wishes: Wishes, own: CpuSet, free: CpuSet, count: int) -> _Taken:
        topology, taste = node.topology, self._taste(node.topology, wishes)
        whole, why = self._whole(topology, free, count)
        kept, (hints, strict) = own & whole, hints_of(wishes)
        near = _near(node, wishes.container) or nodes_of(hints)
        source = surroundings(topology, whole, count, near) if near and not kept else whole
        if len(set(hints)) > 1 and wishes.container.key not in node.grants:
            cpus = take_beside(topology, source, count, hints, taste)
        else:
            cpus = resize_cpus(topology, kept, source, count, taste)
        if self.options.full_pcpus_only and not why:
            cpus = whole_cores(topology, whole, cpus) or cpus
        if strict and not own and not topology.nodes_of(cpus) <= nodes_of(hints):
            raise NotEnough(_strictly(node, wishes.container, count, free))
        return _Taken(cpus, source, [f"it shares a core with others: {why}"] if why else [])

    def _whole(self, topology: Topology, free: CpuSet, count: int) -> tuple[CpuSet, str]:
        """Where exclusive CPUs come from, and why: whole free cores if the options want these, else all *free* CPUs."""
        if not self.options.full_pcpus_only:
            return free, ""
        whole = free.difference(*(core.cpus for core in topology.cores if not core.cpus <= free))
        sizes = {len(core.cpus) for core in topology.cores}
        if len(sizes) == 1 and count % max(sizes):
            return free, f"cores have {max(sizes)} threads"
        if len(whole) < count:
            return free, f"only {len(whole)} CPUs of free cores are left"
        if whole_cores(topology, whole, frozenset(sorted(whole)[:count])) is None:
            return free, f"no whole free cores have exactly {count} CPUs"
        return whole, ""

    def _why_shared(self, container: Container) -> str:
        if container.qos.value not in self.options.exclusive_for:
            return f"its pod is {container.qos.value}"
        if self.options.shared_remainder:
            return f"it asks for {container.cpu_milli}m, which is less than a CPU"
        return f"it asks for {container.cpu_milli}m, which is not a whole number of CPUs"

    def _with_sharers(self, node: Node, news: dict[str, Grant], pool: CpuSet | None = None) -> dict[str, Grant]:
        """The grants *news*, and those of all other shared containers that then are not on the shared *pool*.

        Where all CPUs are exclusive since an earlier policy, shared containers are elsewhere and stay there.

        Args:
            node: as it is before.
            news: new grants; more are added.
            pool: None to find it out; whoever knows that *news* do not change it saves this.
        """
        if pool is None:
            after = node.replace(grants=with_changes(node.grants, news)) if news else node
            pool = interned(self._shared(node.topology, after.exclusive_cpus))
        # Shared containers have very few different sets: comparing and making each once keeps 500 containers cheap.
        moved: dict[tuple[CpuSet, CpuSet, CpuSet], Grant] = {}
        for key, grant in node.grants.items() if pool else ():
            if grant.cpus is pool or (grant.exclusive and not grant.shares) or grant.cpus == pool or key in news:
                continue
            if grant.exclusive:  # it has exclusive CPUs beside the shared ones
                if (cpus := (grant.cpus & grant.exclusive) | pool) != grant.cpus:
                    news[key] = replace(grant, cpus=cpus)
                continue
            place = grant.cpus, grant.mems, grant.home_mems
            if place not in moved:
                moved[place] = Grant(pool, grant.mems, home_mems=grant.home_mems)
            news[key] = moved[place]
        return news


def _own(node: Node, container: Container) -> CpuSet:
    """The available exclusive CPUs that the container has already, if it is placed anew."""
    return node.own_cpus(container.key) & node.topology.cpus


def _near(node: Node, container: Container) -> CpuSet:
    """The NUMA nodes to which a container with a place should stay close: those of its memory, or of its own CPUs."""
    grant = node.grants.get(container.key)
    if grant is None:
        return NO_CPUS
    mems = NO_CPUS if grant.mems == node.topology.mems else grant.mems
    return mems or node.topology.nodes_of(grant.exclusive)


def _strictly(node: Node, container: Container, count: int, free: CpuSet) -> str:
    asks = f"container {container.title} asks for {counted(count, 'exclusive CPU')} strictly close to its devices"
    return f"{asks} on {near_words(container.hints)}, but the free ones are {by_node(node.topology, free)}"


def _refusal(node: Node, container: Container, count: int, free: CpuSet, available: int) -> str:
    held = " (one of them must stay shared)" if available < len(free) else ""
    held += ", including its own" if _own(node, container) else ""
    if node.watched_cpus:
        held += f"; {unmoved(node, node.watched_cpus)}"
    asks = f"container {container.title} asks for {counted(count, 'exclusive CPU')}"
    return f"{asks}, but {only_are(available)} available; free: {by_node(node.topology, free)}{held}"


ENTRY = Entry(StaticOptions, StaticPolicy)
