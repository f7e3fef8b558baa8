"""What a container is to be given, by its size, its class, the options and its annotations."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Level, MemoryKind
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.affinity.affinity import SAME_POD, Affinity, parse_affinities
from criproxy.placement.alloc.affinity.expressions import ALWAYS, Expression
from criproxy.placement.alloc.capacity import shared_milli
from criproxy.placement.alloc.near import Priority
from criproxy.placement.options.annotation_keys import matches_one
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.pod_wishes import HIDE, hints_of, memory_wish
from criproxy.placement.policies.topology_aware.options import LEVELS, SYSTEM_NAMESPACE, TopologyAwareOptions

COLOCATION_WEIGHT = 10


@dataclass(frozen=True, slots=True)
class Request:
    """What a container is to be given."""

    owned: int
    """CPUs."""
    shared_milli: int
    isolated: bool = False
    """Whether its exclusive CPUs should be isolated ones."""
    isolated_only: bool = False
    """Whether they must be."""
    priority: Priority = Priority.NONE
    """Of its exclusive CPUs."""
    limit_milli: int | None = None
    """What a Burstable container may use at most, where the rules look at it."""
    burst: Level | None = None
    """Where a Burstable container without a limit should run, where the rules look at it."""
    hints: tuple[CpuSet, ...] = ()
    """For each device the NUMA nodes next to it."""
    strict: bool = False
    """Whether it must be close to all of them."""
    by_hint: bool | None = None
    """Whether its own CPUs are chosen device by device; None: where its pool has more NUMA nodes than one."""
    affinities: tuple[Affinity, ...] = ()
    hides: bool = False
    """Whether it sees one thread of each core only."""
    memory_kinds: frozenset[MemoryKind] = frozenset()
    """That its pod asks for."""
    reserved: bool = False
    """Whether it shares the reserved CPUs while these have room."""


def is_reserved(options: TopologyAwareOptions, wishes: Wishes) -> bool:
    """Whether the container is one for the reserved CPUs; raises BadAnnotation."""
    wish = wishes.boolean("prefer-reserved-cpus")
    if wish is not None:
        return wish
    namespace = wishes.container.namespace
    return namespace == SYSTEM_NAMESPACE or matches_one(namespace, options.reserved_pool_namespaces)


def request_of(container: Container, options: TopologyAwareOptions, wishes: Wishes) -> Request:
    """What *container* is to be given; raises BadAnnotation.

    The rule is nri-plugins': of 1500m one CPU is exclusive and the rest shared, 2500m are all shared.
    """
    owned, rest = _split(container, options, wishes)
    isolated, isolated_only = _isolation(owned, options, wishes)
    hints, strict = hints_of(wishes)
    limit, burst = _burst(container, options, wishes)
    priority = wishes.read("prefer-cpu-priority", partial(_word, [*Priority]))
    return Request(
        owned,
        rest,
        isolated=bool(owned) and isolated,
        isolated_only=bool(owned) and isolated_only,
        priority=Priority(priority or options.default_cpu_priority),
        limit_milli=limit,
        burst=burst,
        hints=hints,
        strict=strict,
        by_hint=wishes.boolean("pick-resources-by-hints"),
        affinities=_affinities(container, options, wishes),
        hides=bool(wishes.boolean(HIDE)),
        memory_kinds=memory_wish(wishes).kinds,
    )


def _split(container: Container, options: TopologyAwareOptions, wishes: Wishes) -> tuple[int, int]:
    """The number of its exclusive CPUs, and what it shares in milli-CPU."""
    milli = shared_milli(container)
    whole, rest = divmod(milli, 1000)
    wish = wishes.boolean("prefer-shared-cpus")
    shares = options.prefer_shared_cpus if wish is None else wish
    if container.qos is not QosClass.GUARANTEED or shares or not whole or not options.pin_cpu:
        return 0, milli
    if rest and whole >= 2 and wish is None:
        return 0, milli
    return whole, rest


def _isolation(owned: int, options: TopologyAwareOptions, wishes: Wishes) -> tuple[bool, bool]:
    """Whether isolated CPUs are preferred and required: the narrower of both annotations counts."""
    required, preferred = wishes.boolean("require-isolated-cpus"), wishes.boolean("prefer-isolated-cpus")
    if required is not None:
        narrower = wishes.scope("require-isolated-cpus") <= wishes.scope("prefer-isolated-cpus")
        if preferred is None or narrower:
            return required, required
    if preferred is not None:
        return preferred, False
    # Processes on several isolated CPUs have to spread by themselves: only pods that ask for them get them.
    return options.prefer_isolated_cpus and owned == 1, False


def _word(words: Collection[str], text: str) -> str:
    if (word := text.strip().lower()) not in words:
        raise ValueError(f"{text!r} must be one of {', '.join(words)}")
    return word


def _burst(container: Container, options: TopologyAwareOptions, wishes: Wishes) -> tuple[int | None, Level | None]:
    """How far a Burstable container may go beyond its request."""
    wish = wishes.read("unlimited-burstable", partial(_word, LEVELS))
    if container.qos is not QosClass.BURSTABLE or options.rules != "nri":
        return None, None
    if container.cpu_limit_milli:
        return container.cpu_limit_milli, None
    return None, LEVELS[wish or options.unlimited_burstable]


def _affinities(container: Container, options: TopologyAwareOptions, wishes: Wishes) -> tuple[Affinity, ...]:
    """Those that its pod's annotations say, else those that the options imply."""
    name = container.name
    near = wishes.document("affinity", lambda data: parse_affinities(data, name, anti=False)) or ()
    apart = wishes.document("anti-affinity", lambda data: parse_affinities(data, name, anti=True, besides=near))
    if said := (*near, *(apart or ())):
        return said
    implied = list[Affinity]()
    if options.colocate_pods:
        implied.append(Affinity(ALWAYS, COLOCATION_WEIGHT, SAME_POD))
    if options.colocate_namespaces:
        same = Expression("namespace", "Equals", (container.namespace,))
        implied.append(Affinity(same, COLOCATION_WEIGHT, ALWAYS))
    return tuple(implied)
