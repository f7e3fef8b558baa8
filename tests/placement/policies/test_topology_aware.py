"""Containers go to the smallest part of the machine that has room, and stay there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from criproxy.errors import NotEnough, StatusCode
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from tests.placement.policies.shapes import n4c16

G, B, E = QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT
MIB = 1 << 20


def policy(reserved: str = "0", options: Mapping[str, object] | None = None) -> TopologyAwarePolicy:
    """The policy with reserved CPUs and other options by their names in the file."""
    return TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": reserved, **(options or {})}))


def asking(name: str, cpu_milli: int, qos: QosClass = G, namespace: str = "shop") -> Container:
    """A container with a limit that is its request, and 100 MiB of memory."""
    new = Container(key=name, pod=f"pod-{name}", name=name, pod_name="web", namespace=namespace, qos=qos)
    memory_bytes = None if qos is E else 100 * MIB
    return replace(new, cpu_milli=cpu_milli, cpu_limit_milli=cpu_milli or None, memory_limit_bytes=memory_bytes)


class World:
    """A node whose containers come and go by name."""

    def __init__(self, topology: Topology, by: TopologyAwarePolicy) -> None:
        self.node = Node(topology)
        self.by = by
        self.reasons: tuple[str, ...] = ()

    def come(self, *names: str, milli: int = 0, qos: QosClass = G, namespace: str = "shop") -> "World":
        """Create containers of one size."""
        for name in names:
            decision = step(self.node, ev.ContainerCreating(asking(name, milli, qos, namespace)), self.by)
            self.node, self.reasons = decision.node, decision.sentences
            assert violations(self.node, self.by.options.reserved_cpus) == []
        return self

    def go(self, *names: str) -> "World":
        """Remove containers."""
        for name in names:
            self.node = step(self.node, ev.ContainerGone(name), self.by).node
            assert violations(self.node, self.by.options.reserved_cpus) == []
        return self

    def resize(self, name: str, milli: int) -> "World":
        """Give a container another size of CPU."""
        sizes = replace(self.node.containers[name].sizes, cpu_milli=milli)
        decision = step(self.node, ev.ContainerResized(name, sizes), self.by)
        self.node, self.reasons = decision.node, decision.sentences
        assert violations(self.node, self.by.options.reserved_cpus) == []
        return self

    def cpus(self, *names: str) -> list[str]:
        """Where containers may run."""
        return [format_cpuset(self.node.grants[name].cpus) for name in names]

    def mems(self, *names: str) -> list[str]:
        """Where their memory may be."""
        return [format_cpuset(self.node.grants[name].mems) for name in names]

    def owned(self, name: str) -> int:
        """How many CPUs it owns."""
        return len(self.node.grants[name].exclusive)


def four(prefix: str) -> list[str]:
    """Names of four containers."""
    return [f"{prefix}{i}" for i in range(4)]


class TestVectors:
    """Placements from the tests of CRI-RM and nri-plugins, by the ids of the scenarios."""

    def test_v09_reserved_pool(self) -> None:
        """Containers of kube-system share the reserved CPUs up to their capacity, and the whole machine beyond it."""
        by = policy("7,11")
        world = World(n4c16(allowed="4-13"), by)
        world.come("p0", "p1", "p2", qos=E, namespace="kube-system")
        world.come(*four("g"), milli=200, namespace="kube-system")
        world.come("one", milli=1000, namespace="kube-system").go("one")
        world.come("again", milli=1000, namespace="kube-system")
        assert world.cpus("p0", "p2", "g0", "g3", "again") == ["7,11"] * 5

        world.go("again").come("two", milli=2000, namespace="kube-system")
        assert world.cpus("two") == ["4-6,8-10,12-13"]
        assert world.owned("two") == 0
        assert world.reasons[0] == (
            "kube-system/web/two shares CPUs 4-6,8-10,12-13 of the machine: "
            "the reserved CPUs, which are for such containers, have 1200m left"
        )

    def test_isolated_cpus_of_a_node_that_is_full(self) -> None:
        """The socket around gives the fraction that the node of the isolated CPUs cannot give."""
        world = World(n4c16(isolated="8-9"), policy("")).come(*four("c"), milli=1800, qos=B)
        assert world.cpus(*four("c")) == ["0-3", "4-7", "12-15", "10-11"]

        assert world.come("mixed", milli=1500).cpus("mixed") == ["8,10-15"]
        assert world.come("one", milli=1000).cpus("one") == ["9"]


MACHINE = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11


@pytest.mark.parametrize(
    ("milli", "qos", "owned", "size"),
    [
        pytest.param(999, G, 0, 8, id="less-than-one"),
        pytest.param(1000, G, 1, 1, id="one"),
        pytest.param(1001, G, 1, 8, id="one-and-a-bit"),
        pytest.param(2000, G, 2, 2, id="two"),
        pytest.param(2001, G, 0, 8, id="two-and-a-bit"),
        pytest.param(0, G, 0, 8, id="nothing"),
        pytest.param(2000, B, 0, 8, id="burstable"),
        pytest.param(2, E, 0, 8, id="best-effort"),
        pytest.param(9000, G, 9, 9, id="more-than-a-node"),
        pytest.param(7001, B, 0, 8, id="nearly-a-node"),
        pytest.param(8001, B, 0, 15, id="shares-more-than-a-node"),
        pytest.param(99_000, B, 0, 15, id="shares-more-than-the-machine"),
    ],
)
def test_who_gets_what(milli: int, qos: QosClass, owned: int, size: int) -> None:
    """Whole CPUs of Guaranteed pods are owned, everything else is shared in the smallest pool that has it."""
    world = World(MACHINE, policy()).come("c", milli=milli, qos=qos)

    assert (world.owned("c"), len(world.node.grants["c"].cpus)) == (owned, size)


def test_sharers_move_up_and_find_back() -> None:
    """When all CPUs of a pool are owned, its sharers use those around it, and return as CPUs are free again."""
    world = World(machine(nodes=2, cores=2, threads=1, packages=1), policy("")).come("a", "b", qos=E)
    assert world.cpus("a", "b") == ["0-1", "2-3"]

    world.come("own0", "own1", milli=1000)
    assert world.cpus("a", "b", "own0", "own1") == ["1", "3", "0", "2"]

    world.come("own2", milli=1000)
    assert world.cpus("a", "b", "own2") == ["3", "3", "1"]

    world.go("own1")
    assert world.cpus("a", "b") == ["2-3", "2-3"]
    world.go("own0")
    assert world.cpus("a", "b") == ["0", "2-3"]


def test_an_owner_that_outgrows_its_node_keeps_its_cpus() -> None:
    """The next ones come from the smallest part of the machine around it, whatever else is emptier."""
    world = World(n4c16(), policy()).come("own", milli=4000)
    assert (world.cpus("own"), world.mems("own")) == (["4-7"], ["1"])
    world.resize("own", 5000)
    assert (world.cpus("own"), world.mems("own")) == (["1,4-7"], ["0-1"])

    full = World(n4c16(), policy()).come("own", milli=2000).come("a", "b", "c", milli=3000).come("d", milli=2000)
    assert full.cpus("own", "d") == ["4-5", "6-7"]
    full.go("a").resize("own", 3000)
    assert full.cpus("own") == ["4-5,15"]


def test_a_sharer_that_outgrows_its_node_gets_more_around_it() -> None:
    """It keeps its NUMA node, where its memory is, though another one has all that it asks for."""
    world = World(n4c16(), policy()).come("own", milli=2000, qos=B).come("a", "b", "c", milli=3000, qos=B)
    world.come("d", milli=2000, qos=B)
    assert world.cpus("own", "a", "d") == ["4-7", "8-11", "4-7"]
    world.go("a").resize("own", 3000)

    assert (world.cpus("own"), world.mems("own")) == (["1-15"], ["0-3"])


def test_a_sharer_that_outgrows_its_cache_moves_within_its_node() -> None:
    """Another level 3 cache of the same NUMA node is as near to its memory as its own."""
    topology = replace(machine(nodes=2, cores=4, threads=1), l3_groups=tuple(map(parse_cpuset, ("0-1", "2-3", "4-7"))))
    world = World(topology, policy("")).come("far", "own", "b", milli=1000, qos=B).come("c", "d", milli=1000, qos=B)
    assert world.cpus("far", "own", "b", "c", "d") == ["4-7", "0-1", "2-3", "4-7", "0-1"]
    world.go("b", "far", "c").come("e", milli=500, qos=B).go("e").resize("own", 1500)

    assert (world.cpus("own"), world.mems("own")) == (["2-3"], ["0"])


@pytest.mark.parametrize(
    ("arrivals", "asked", "text"),
    [
        pytest.param(
            [("a", 500, B)],
            16_000,
            "container shop/web/c asks for 16 exclusive CPUs, but only 14 are available; free: CPUs 1-3,8-11 on "
            "NUMA node 0, CPUs 4-7,12-15 on NUMA node 1; of these, 1 must stay shared for containers that were "
            "granted 500m in total",
            id="more-than-there-is",
        ),
        pytest.param(
            [("a", 5000, G), ("b", 7000, G), ("s", 2500, B)],
            1000,
            "container shop/web/c asks for 1 exclusive CPU, but none is available; free: CPUs 7,14-15 on NUMA node 1; "
            "of these, 3 must stay shared for containers that were granted 2500m in total",
            id="promised-to-sharers",
        ),
    ],
)
def test_refusals(arrivals: Sequence[tuple[str, int, QosClass]], asked: int, text: str) -> None:
    """Who does not fit is told what it asked, what is free and where, and for whom CPUs are kept."""
    world = World(MACHINE, policy())
    for name, milli, qos in arrivals:
        world.come(name, milli=milli, qos=qos)
    with pytest.raises(NotEnough) as caught:
        world.come("c", milli=asked)

    assert str(caught.value) == text
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_reasons() -> None:
    """They name container, CPUs and pool, what was asked, and what decided."""
    world = World(n4c16(), policy()).come("a", milli=1000)
    place, memory = world.reasons
    assert place == (
        "shop/web/a gets exclusive CPU 4 on NUMA node 1: its pod is Guaranteed and it asks for 1000m, "
        "and NUMA node 1 is the first of several equal pools"
    )
    assert memory == "memory from NUMA node 1, near its CPUs"
    assert world.come("b", milli=1500).reasons[0] == (
        "shop/web/b gets exclusive CPU 8 and shares CPUs 9-11 on NUMA node 2: its pod is Guaranteed and it asks for "
        "1500m, and NUMA node 2 is the first of several equal pools"
    )
    assert world.come("c", milli=300, qos=B).reasons[0] == (
        "shop/web/c shares CPUs 12-15 of NUMA node 3: it asks for 300m, "
        "and NUMA node 3 is preferred to NUMA node 0 because it has more free CPU"
    )
    assert world.come("d", qos=E).reasons[0] == (
        "shop/web/d shares CPUs 1-3 of NUMA node 0: it asks for nothing, "
        "and NUMA node 0 is preferred to NUMA node 3 because it has fewer containers"
    )


@pytest.mark.parametrize(
    ("options", "milli", "expected"),
    [
        pytest.param({"preferSharedCPUs": True}, 2000, ("4-7", "", "1"), id="prefer-shared"),
        pytest.param({"pinCPU": False}, 2000, ("0-15", "", "1"), id="no-cpu-pinning"),
        pytest.param({"pinMemory": False}, 2000, ("4-5", "4-5", ""), id="no-memory-pinning"),
        pytest.param({"preferIsolatedCPUs": True}, 1000, ("7", "7", "1"), id="isolated"),
        pytest.param({"preferIsolatedCPUs": False}, 1000, ("8", "8", "2"), id="not-isolated"),
        pytest.param({"reservedPoolNamespaces": ["sh*"]}, 200, ("0", "", "0-3"), id="reserved-namespace"),
    ],
)
def test_options(options: dict[str, object], milli: int, expected: tuple[str, str, str]) -> None:
    """Each option changes what it says."""
    topology = n4c16(isolated="7" if "preferIsolatedCPUs" in options else "")
    world = World(topology, policy(options=options)).come("c", milli=milli)
    grant = world.node.grants["c"]

    assert tuple(map(format_cpuset, (grant.cpus, grant.exclusive, grant.mems))) == expected


def test_only_isolated_and_reserved_cpus() -> None:
    """Where nothing else is left, reserved CPUs are shared by all, then isolated ones."""
    reserved = World(n4c16(allowed="8-11", isolated="8-9"), policy("10-11")).come("a", milli=500).come("b", milli=1000)
    assert reserved.cpus("a", "b") == ["10-11", "8"]
    with pytest.raises(
        NotEnough, match="asks for 2 exclusive CPUs, but no CPU can be exclusive: all CPUs that pods may use are"
    ):
        reserved.come("c", milli=2000)

    isolated = World(n4c16(allowed="8-9", isolated="8-9"), policy("")).come("a", milli=500)
    assert isolated.cpus("a") == ["8-9"]
    assert isolated.come("b", milli=1000).cpus("a", "b") == ["9", "8"]


@pytest.mark.parametrize("milli", [500, 2000])
def test_who_comes_from_another_policy_comes_to_its_memory(milli: int) -> None:
    """It has no pool, and its memory does not move; where that may be anywhere, it is like a newcomer."""
    newcomer = World(n4c16(), policy()).come("a", milli=milli)
    assert pools_used(newcomer.node, "a") == {"NUMA node 1"}

    for mems, pool in (("2", "NUMA node 2"), ("2-3", "socket 1"), ("0-3", "NUMA node 1")):
        elsewhere = Grant(parse_cpuset("1-9"), parse_cpuset(mems), pool="elsewhere")
        world = World(n4c16(), policy())
        world.node = newcomer.node.replace(grants={"a": elsewhere})
        assert pools_used(step(world.node, ev.PolicyChanged(apply_all=True), world.by).node, "a") == {pool}


def pools_used(node: Node, keys: Iterable[str]) -> set[str]:
    """The pools of containers."""
    return {node.grants[key].pool for key in keys}


def test_who_shares_keeps_an_isolated_cpu_where_all_others_are_owned() -> None:
    """CPUs went away, and what is left beside an owner is isolated: nobody can own the last one."""
    whole = replace(machine(nodes=2, cores=2, threads=1), isolated_cpus=frozenset({0}))
    world = World(whole, policy("")).come("owner", milli=2000)
    left = ev.TopologyChanged(replace(whole, cpus=frozenset({0, 2})))
    world.node = step(world.node, left, world.by).node
    assert world.come("sharer").cpus("owner", "sharer") == ["2", "0"]

    with pytest.raises(NotEnough):
        world.come("late", milli=1000)
