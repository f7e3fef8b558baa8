"""The policy topology-aware on real machines: their pools, and what becomes of them when containers fill them up."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from criproxy.errors import NotEnough
from criproxy.host import discover
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.pools import build_pools
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone
from criproxy.placement.invariants import violations
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import unpack

FILES = re.compile(
    r"/cpu/(online|isolated|possible|present|offline)|cpu\d+/online|/topology/|/node/|mounts|cgroup|cpuset"
)
GIB = 1 << 30


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a folder in memory where there is one: thousands of tiny files are slow elsewhere."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def unpacked(shared_dir: Path, scratch: Path, name: str) -> Topology:
    """The machine of a snapshot."""
    unpack(shared_dir / f"topologies/snapshots/{name}.tar.xz", scratch, FILES.search)
    return discover(scratch)


def levels(topology: Topology) -> dict[str, int]:
    """How many pools there are of each kind."""
    return Counter(
        " ".join(re.findall(r"[A-Za-z]+", pool.name.partition(" in ")[0])) for pool in build_pools(topology).pools
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("arm64-1cpu", {"the machine": 1}, id="one-cpu"),
        pytest.param("raptorlake-6p8e", {"the machine": 1}, id="desktop"),
        pytest.param("knl-snc4-hbm", {"the machine": 1, "NUMA node": 4}, id="memory-only-nodes"),
        pytest.param("haswell-offline-node0", {"the machine": 1, "socket": 1, "NUMA node": 1}, id="cpus-in-no-node"),
        pytest.param("opteron-4s8n-cgroup2", {"the machine": 1, "NUMA node": 2}, id="a-few-cpus-allowed"),
        pytest.param("multidie-4s16n", {"the machine": 1, "socket": 4, "die": 8, "NUMA node": 16}, id="dies"),
        pytest.param("xeon-2s-snc2-pmem4-isolated", {"the machine": 1, "socket": 2, "NUMA node": 4}, id="pmem"),
    ],
)
def test_pools_and_a_full_life(shared_dir: Path, scratch: Path, name: str, expected: dict[str, int]) -> None:
    """The levels are those of the machine; owners get one node while any has room; when all went all is as before."""
    topology = unpacked(shared_dir, scratch, name)
    assert levels(topology) == expected

    policy, node, owners = TopologyAwarePolicy(TopologyAwareOptions()), Node(topology), 0
    for container in crowd(min(free_in_nodes(node), default=len(topology.cpus))):
        room = max(free_in_nodes(node), default=0)
        try:
            node = step(node, ContainerCreating(container), policy).node
        except NotEnough:
            break
        grant = node.grants[container.key]
        owners += bool(grant.exclusive)
        assert len(topology.nodes_of(grant.exclusive)) <= 1 or room <= len(grant.exclusive)
        assert violations(node) == []
    assert (owners > 0) == (len(topology.cpus) > 1)
    for key in list(node.containers):
        node = step(node, ContainerGone(key), policy).node
        assert violations(node) == []
    assert node == Node(topology)


def free_in_nodes(node: Node) -> list[int]:
    """For each NUMA node with any how many CPUs can be owned; one in use stays with those that share."""
    free = node.topology.cpus - node.topology.isolated_cpus - node.exclusive_cpus
    return [len(numa.cpus & free) for numa in node.topology.nodes if numa.cpus & free]


def crowd(cpus: int) -> Iterator[Container]:
    """Owners of half a node and one that shares after each, without end."""
    count = max(1, cpus // 2)
    for i in range(1000):
        owner = i % 2 == 0
        yield Container(
            key=f"c{i}",
            pod=f"p{i}",
            name="main",
            qos=QosClass.GUARANTEED if owner else QosClass.BURSTABLE,
            cpu_milli=count * 1000 if owner else 5,
            memory_limit_bytes=GIB,
        )
