"""How near pools are to what a container should be near: other containers by affinity, and devices by hints."""

from collections.abc import Callable, Sequence

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.affinity.affinity import SAME_POD, Affinity, keys_of, pool_scores, weight_of
from criproxy.placement.alloc.capacity import RESERVED, pool_of
from criproxy.placement.alloc.pools import PoolTree
from criproxy.placement.alloc.rank import Criterion, Unit
from criproxy.placement.options.match_keys import attribute_of, is_of_pod
from criproxy.placement.policies.topology_aware.request import Request

ByPool = Sequence[Sequence[Criterion]]


def affinity_criteria(tree: PoolTree, others: Node, container: Container, request: Request) -> ByPool:
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
            counted = affinities if same_pod else beyond
            weight = weight_of(counted, lambda key: own[key] if key in own else attribute(key), same_pod=same_pod)
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


def hint_criteria(tree: PoolTree, request: Request) -> ByPool:
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
