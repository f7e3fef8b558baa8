"""Made-up machines, by shape."""

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import LOCAL_DISTANCE, REMOTE_DISTANCE, Core, NumaNode, Package, Topology

GIB = 1 << 30


def machine(
    nodes: int = 1,
    cores: int = 4,
    threads: int = 2,
    *,
    packages: int | None = None,
    memory_bytes: int = 16 * GIB,
    allowed: CpuSet | None = None,
) -> Topology:
    """A regular machine whose CPUs are numbered as Linux does on a PC: first threads of all cores, then the second.

    Every core has a level 2 cache, every NUMA node a level 3 cache.

    Args:
        nodes: NUMA nodes.
        cores: cores of one NUMA node.
        threads: threads of one core.
        packages: sockets, over which the nodes are spread in order; one for each node where not given.
        memory_bytes: memory of one NUMA node.
        allowed: CPUs that pods may use, all where not given.
    """
    stride = nodes * cores
    every_core = [Core(i, frozenset(i + stride * thread for thread in range(threads))) for i in range(stride)]
    node_cpus = [_union(every_core[i * cores : (i + 1) * cores]) for i in range(nodes)]
    online = frozenset(range(stride * threads))
    ids = range(nodes)
    sockets = packages or nodes
    socket_cpus = [[c for i, c in enumerate(node_cpus) if i * sockets // nodes == socket] for socket in range(sockets)]
    return Topology(
        cpus=online if allowed is None else online & allowed,
        mems=frozenset(range(nodes)),
        nodes=tuple(NumaNode(i, cpus, memory_bytes) for i, cpus in enumerate(node_cpus)),
        cores=tuple(every_core),
        packages=tuple(Package(i, frozenset().union(*sets)) for i, sets in enumerate(socket_cpus)),
        online_cpus=online,
        l2_groups=tuple(core.cpus for core in every_core),
        l3_groups=tuple(node_cpus),
        distances=tuple(tuple(LOCAL_DISTANCE if i == j else REMOTE_DISTANCE for j in ids) for i in ids),
    )


def _union(cores: list[Core]) -> CpuSet:
    return frozenset().union(*(core.cpus for core in cores))
