"""What a container is to be given, by its size, its class, the options and its annotations; and how near pools are.

Near to other containers by affinity, and to devices by hints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Level, MemoryKind, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.affinity.affinity import (
    SAME_POD,
    Affinity,
    keys_of,
    parse_affinities,
    pool_scores,
    weight_of,
)
from criproxy.placement.alloc.affinity.expressions import ALWAYS, Expression
from criproxy.placement.alloc.capacity import pool_of, shared_milli
from criproxy.placement.alloc.near import Priority
from criproxy.placement.alloc.pools import PoolTree
from criproxy.placement.alloc.rank import Criterion, Unit
from criproxy.placement.alloc.sharing import RESERVED
from criproxy.placement.options.annotation_keys import matches_one
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.match_keys import attribute_of, is_of_pod
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
    return Request(
        owned,
        rest,
        isolated=bool(owned) and isolated,
        isolated_only=bool(owned) and isolated_only,
        priority=wishes.read("prefer-cpu-priority", _priority) or Priority(options.default_cpu_priority),
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


def _priority(text: str) -> Priority:
    try:
        return Priority(text.strip().lower())
    except ValueError:
        raise ValueError(f"{text!r} must be one of {', '.join(Priority)}") from None


def _burst(container: Container, options: TopologyAwareOptions, wishes: Wishes) -> tuple[int | None, Level | None]:
    """How far a Burstable container may go beyond its request."""
    wish = wishes.read("unlimited-burstable", _level)
    if container.qos is not QosClass.BURSTABLE or options.rules != "nri":
        return None, None
    if container.cpu_limit_milli:
        return container.cpu_limit_milli, None
    return None, wish or LEVELS[options.unlimited_burstable]


def _level(text: str) -> Level:
    if text.strip().lower() not in LEVELS:
        raise ValueError(f"{text!r} must be one of {', '.join(LEVELS)}")
    return LEVELS[text.strip().lower()]


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


def affinity_criteria(
    tree: PoolTree, others: Node, container: Container, request: Request
) -> Sequence[Sequence[Criterion]]:
    """By pool; none for a container without affinities."""
    if not request.affinities:
        return ()
    weights: dict[int, int] = {}
    weight_of_other = _weighing(others, container, request.affinities)
    for key, grant in others.grants.items():
        other = others.containers.get(key)
        if other and (weight := weight_of_other(other)):
            index = 0 if grant.pool == RESERVED else pool_of(tree, grant).index
            weights[index] = weights.get(index, 0) + weight
    scores = pool_scores([pool.path for pool in tree.pools], weights)
    return [[Criterion("its affinities draw it there", -score, Unit.MORE)] for score in scores]


def _weighing(others: Node, container: Container, affinities: Sequence[Affinity]) -> Callable[[Container], int]:
    """How much weight the *affinities* of a container give to another one.

    There may be hundreds of others, in other pods or in its own. Those of one pod differ only in the keys that are not
    the pod's, and often in none: then one answer is for all of them.
    """
    siblings = _sandboxes(others, container)
    beyond = [affinity for affinity in affinities if affinity.scope is not SAME_POD]
    own_keys, own_keys_beyond = _own_keys(affinities), _own_keys(beyond)
    known: dict[tuple[str | None, ...], int] = {}

    def weigh(other: Container) -> int:
        same_pod = other.pod in siblings
        attribute = attribute_of(others, other)
        own = {key: attribute(key) for key in (own_keys if same_pod else own_keys_beyond)}
        alike = other.pod, *own.values()
        if (weight := known.get(alike)) is None:
            weight = weight_of(
                affinities if same_pod else beyond,
                lambda key: own[key] if key in own else attribute(key),
                same_pod=same_pod,
            )
            known[alike] = weight
        return weight

    return weigh


def _own_keys(affinities: Sequence[Affinity]) -> list[str]:
    """Those that they look at for which the containers of a pod may have values of their own."""
    return sorted(key for key in keys_of(affinities) if not is_of_pod(key))


def _sandboxes(node: Node, container: Container) -> frozenset[str]:
    """The pod of *container*, and others with its uid: a pod gets another sandbox, and stays the same."""
    pod = node.pods.get(container.pod)
    if pod is None or not pod.uid:
        return frozenset({container.pod})
    return frozenset(key for key, other in node.pods.items() if other.uid == pod.uid)


def hint_criteria(tree: PoolTree, request: Request) -> Sequence[Sequence[Criterion]]:
    """By pool: none of it far from the devices, something of it near each, and then the smallest.

    None for a container without devices. So one whose pool next to its device is full goes to the next one, and not to
    a part of the machine that has that pool and distant ones.
    """
    if not request.hints:
        return ()
    hints = list(dict.fromkeys(request.hints))
    return [_hint_criteria(tree, index, nodes, hints) for index, nodes in enumerate(tree.nodes)]


def _hint_criteria(tree: PoolTree, index: int, nodes: CpuSet, hints: Sequence[CpuSet]) -> list[Criterion]:
    met = sum(not hint.isdisjoint(nodes) for hint in hints)
    split = [
        Criterion("it is near all its devices", int(met < len(hints))),
        Criterion("it is near more of its devices", -met, Unit.MORE),
    ]
    return [
        Criterion("it is nearer to its devices", _farthest(tree.topology, nodes, hints), Unit.FEWER),
        *(split if len(hints) > 1 else ()),
        Criterion("it is the smallest near its devices", tree.heights[index], Unit.FEWER),
        Criterion("it comes first of those near its devices", index if met else 0, Unit.FEWER),
    ]


def _farthest(topology: Topology, nodes: CpuSet, hints: Sequence[CpuSet]) -> int:
    """From any of *nodes* to the device that is farthest away from it, as the kernel measures distances."""
    ways = (min(topology.distance(node, home) for home in hint) for node in nodes for hint in hints)
    return max(ways, default=0)


def is_near_all(topology: Topology, cpus: CpuSet, hints: Sequence[CpuSet]) -> bool:
    """Whether *cpus* are on NUMA nodes next to devices, and next to each of them."""
    nodes = topology.nodes_of(cpus)
    return nodes <= frozenset[int]().union(*hints) and all(not hint.isdisjoint(nodes) for hint in hints)
