"""Containers with cards on machines with eight GPUs: next to them while there is room, then as near as can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import LOCAL_DISTANCE, Topology
from criproxy.model.node import Node
from criproxy.model.resources import Interval
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, PodCreated
from criproxy.placement.invariants import violations
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import GIB, machine
from tests.placement.built import policy_of
from tests.placement.policies.tables import shown

GPUS = 8
CORES = 4
NEAR, FAR = 12, 32
"""To another NUMA node of the socket, and to those of the other one."""
G, B, E = QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT
SHAPES = (2, 4, 8)
OPTIONS: Mapping[str, dict[str, Any]] = {
    "topology-aware": {"reservedCpus": "0"},
    "static": {"reservedCpus": "0"},
    "balloons": {
        "reservedResources": {"cpu": "cpuset:0"},
        "balloonTypes": [
            {"name": "gpu", "namespaces": ["*"], "preferNewBalloons": True, "preferSpreadingPods": True, "minCPUs": 1}
        ],
    },
}


def with_gpus(nodes: int) -> Topology:
    """Two sockets with so many NUMA nodes together, of four CPUs each."""
    plain = machine(nodes=nodes, cores=CORES, threads=1, packages=2, memory_bytes=64 * GIB)
    socket = nodes // 2
    rows = [
        tuple(LOCAL_DISTANCE if a == b else NEAR if a // socket == b // socket else FAR for b in range(nodes))
        for a in range(nodes)
    ]
    return replace(plain, distances=tuple(rows))


def node_of(gpu: int, nodes: int) -> int:
    """The NUMA node next to a GPU: as many GPUs on each."""
    return gpu * nodes // GPUS


def policy(name: str, **options: object) -> Policy:
    """A policy, with CPU 0 reserved."""
    return policy_of(name, OPTIONS[name] | options)


@dataclass(slots=True)
class Life:
    """A node with GPUs."""

    nodes: int
    name: str = "topology-aware"
    topology: Topology | None = None
    """Another machine than that with GPUs."""
    node: Node = field(init=False)
    by: Policy = field(init=False)

    def __post_init__(self) -> None:
        self.node, self.by = Node(self.topology or with_gpus(self.nodes)), policy(self.name)

    def asking(
        self, key: str, *gpus: int, near: CpuSet | None = None, qos: QosClass = G, milli: int = 1000
    ) -> Container:
        """A container that was given GPUs."""
        limited = None if qos is E else GIB
        return Container(
            key=key,
            pod=f"pod-{key}",
            name=key,
            pod_name=key,
            namespace="default",
            qos=qos,
            cpu_milli=0 if qos is E else milli,
            cpu_limit_milli=milli if qos is G else None,
            memory_limit_bytes=limited,
            memory_request_bytes=Interval(GIB, GIB) if limited else None,
            hints=(near,) if near else tuple(frozenset({node_of(gpu, self.nodes)}) for gpu in gpus),
        )

    def come(
        self, key: str, *gpus: int, near: CpuSet | None = None, qos: QosClass = G, milli: int = 1000, **said: str
    ) -> Grant:
        """A container with GPUs comes, and *said* are annotations; what it is granted."""
        annotations = {f"{name.replace('_', '.')}.criproxy.io/pod": value for name, value in said.items()}
        pod = Pod(key=f"pod-{key}", name=key, namespace="default", qos=qos, annotations=annotations)
        known = step(self.node, PodCreated(pod), self.by).node
        creating = ContainerCreating(self.asking(key, *gpus, near=near, qos=qos, milli=milli))
        self.node = step(known, creating, self.by).node
        assert violations(self.node) == []
        return self.node.grants[key]

    def at(self, grant: Grant) -> str:
        """The NUMA nodes of its CPUs."""
        return format_cpuset(self.node.topology.nodes_of(grant.cpus))

    @property
    def free(self) -> CpuSet:
        """CPUs that nobody has who owns any, and that are not reserved; of balloons, those of none."""
        taken = (grant.cpus if self.name == "balloons" else grant.exclusive for grant in self.node.grants.values())
        return self.node.topology.cpus.difference({0}, *taken)

    def circle(self, gpus: Sequence[int], count: int, free: CpuSet) -> CpuSet:
        """The NUMA nodes around GPUs, as few as have *count* of the *free* CPUs, by distance."""
        homes, topology = {node_of(gpu, self.nodes) for gpu in gpus}, self.node.topology
        found = (
            [n for n in topology.nodes if min(topology.distance(n.id, home) for home in homes) <= distance]
            for distance in (LOCAL_DISTANCE, NEAR, FAR)
        )
        near = next((ns for ns in found if sum(len(n.cpus & free) for n in ns) >= count), topology.nodes)
        return frozenset(n.id for n in near)


@pytest.mark.parametrize("nodes", SHAPES)
@pytest.mark.parametrize("qos", [G, B, E], ids=lambda qos: qos.value)
class TestEveryClass:
    """The policy topology-aware, on 2, 4 and 8 NUMA nodes."""

    def test_one_container_for_each_gpu(self, nodes: int, qos: QosClass) -> None:
        """There is room for each on the CPUs next to its card, and in the memory there where it has a limit."""
        life = Life(nodes)
        milli = 1000 * CORES * nodes // GPUS // 2

        for gpu in range(GPUS):
            grant = life.come(f"c{gpu}", gpu, qos=qos, milli=milli)
            assert life.at(grant) == str(node_of(gpu, nodes))
            every = format_cpuset(life.node.topology.mems)
            assert format_cpuset(grant.mems) == (every if qos is E else str(node_of(gpu, nodes)))

    def test_where_it_is_full_the_nearest_is_next(self, nodes: int, qos: QosClass) -> None:
        """Owners have all CPUs next to the last GPU: its containers go to the socket's other nodes, if it has any."""
        life = Life(nodes)
        life.come("full", GPUS - 1, milli=1000 * CORES)

        grant = life.come("next", GPUS - 1, qos=qos, milli=2000)

        (home,) = life.asking("next", GPUS - 1).hints
        ways = {life.node.topology.distance(home_id, other) for home_id in home for other in map(int, life.at(grant))}
        assert ways == {FAR if nodes == 2 else NEAR}
        assert qos is E or grant.mems == life.node.topology.nodes_of(grant.cpus)


@pytest.mark.parametrize("nodes", SHAPES)
@pytest.mark.parametrize("name", list(OPTIONS))
class TestEveryPolicy:
    """Owners, and balloons of their own."""

    def test_several_gpus(self, name: str, nodes: int) -> None:
        """CPUs come from the nodes of its cards and no others, and so does memory; the same number where owned."""
        life = Life(nodes, name)

        grant = life.come("two", 0, GPUS - 1, milli=4000)

        assert life.node.topology.nodes_of(grant.cpus) <= {0, nodes - 1}
        if name != "balloons":
            assert life.at(grant) == format_cpuset(frozenset({0, nodes - 1}))
            assert [len(life.node.topology.node_by_id[n].cpus & grant.cpus) for n in (0, nodes - 1)] == [2, 2]
        assert grant.mems == life.node.topology.nodes_of(grant.cpus)

    @pytest.mark.parametrize("words", ["false", "none,mounts", "false, none"])
    def test_off(self, name: str, nodes: int, words: str) -> None:
        """With the annotation, it is placed as one without a card."""
        with_card, without = Life(nodes, name), Life(nodes, name)

        assert with_card.come("c", GPUS - 1, topologyhints=words) == without.come("c")

    def test_strict(self, name: str, nodes: int) -> None:
        """It gets CPUs next to its card, or none, with a sentence that says why."""
        life = Life(nodes, name)

        assert life.at(life.come("c0", GPUS - 1, milli=3000, strict_topologyhints="true")) == str(nodes - 1)
        with pytest.raises(NotEnough, match=f"close to its devices on NUMA node {nodes - 1}"):
            life.come("c1", GPUS - 1, milli=2000, strict_topologyhints="true")
        assert life.at(life.come("c2", GPUS - 1, milli=1000, strict_topologyhints="true")) == str(nodes - 1)


@pytest.mark.parametrize("name", list(OPTIONS))
@given(
    nodes=st.sampled_from(SHAPES),
    arrivals=st.lists(st.tuples(st.integers(0, GPUS - 1), st.integers(1, CORES), st.booleans()), max_size=12),
)
def test_as_near_as_there_is_room(name: str, nodes: int, arrivals: list[tuple[int, int, bool]]) -> None:
    """Whoever comes and goes: no CPU is further away than the nearest ones of which enough are free."""
    life = Life(nodes, name)
    there: list[str] = []
    for number, (gpu, count, leaves) in enumerate(arrivals):
        if leaves and there:
            life.node = step(life.node, ContainerGone(there.pop(0)), life.by).node
        free, key = life.free, f"c{number}"
        if len(free) <= count + 1:  # one may have to stay with those who share
            continue
        # Balloons keep a CPU for the one that has to be there, and nobody knows where.
        reach = life.circle([gpu], count + (name == "balloons"), free)
        grant = life.come(key, gpu, milli=1000 * count)
        there.append(key)
        assert life.node.topology.nodes_of(grant.cpus) <= reach


@given(
    nodes=st.sampled_from(SHAPES),
    arrivals=st.lists(st.tuples(st.integers(0, GPUS - 1), st.integers(1, 30)), max_size=12),
)
def test_sharers_are_as_near_as_there_is_room(nodes: int, arrivals: list[tuple[int, int]]) -> None:
    """A Burstable container is in the pool of its card while what was granted there leaves room, else the nearest."""
    life = Life(nodes)
    topology = life.node.topology
    left = {node.id: 1000 * len(node.cpus - {0}) for node in topology.nodes}
    for number, (gpu, tenths) in enumerate(arrivals):
        home, milli = node_of(gpu, nodes), 100 * tenths
        grant = life.come(f"c{number}", gpu, qos=B, milli=milli)
        at = topology.nodes_of(grant.cpus)
        fitting = [node for node, room in left.items() if room >= milli]
        if len(at) > 1 or not fitting:
            break  # in a part of the machine with several nodes: what is left of each, nobody can say any more
        (there,) = at
        left[there] -= milli
        assert topology.distance(home, there) == min(topology.distance(home, node) for node in fitting)


def test_balloons_show_why() -> None:
    """A balloon that is there, and far away, comes after a new one next to the card."""
    life = Life(4, "balloons")
    life.come("far", 0)

    candidates = shown(life.node, life.asking("new", GPUS - 1), life.by)

    assert candidates is not None
    notes = {row.name: row.note for row in candidates.rows}
    assert notes[candidates.chosen] == "it is next to its devices, and new ones are preferred"


def test_balloons_that_must_be_near_show_who_is_not() -> None:
    """One that is elsewhere lacks that."""
    life = Life(4, "balloons")
    life.come("far", 0)

    strict = {"strict.topologyhints.criproxy.io/pod": "true"}
    candidates = shown(life.node, life.asking("new", GPUS - 1), life.by, strict)

    assert candidates is not None
    assert {"gpu[0]": "closeness to its devices"}.items() <= {row.name: row.lacks for row in candidates.rows}.items()


def test_static_says_where_it_looked() -> None:
    """The parts of the machine that are compared are those next to the card."""
    life = Life(4, "static")

    candidates = shown(life.node, life.asking("new", GPUS - 1), life.by)

    assert candidates is not None
    assert candidates.note == "only parts nearest to its devices on NUMA node 3 were compared"
    assert candidates.chosen == "NUMA node 3"
