"""What must always be true holds for every policy and every life, and each violation is noticed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Change, Grant
from criproxy.model.machine.topology import MemoryKind, NumaNode, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, Event, PodCreated
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.laws import departure_undoes_arrival
from tests.placement.lives import containers, live, lives, lives_with_found, machines

reserved_sets = st.sampled_from(["", "0", "0,3", "77"]).map(parse_cpuset)
policies = st.sampled_from(sorted(BUILTIN))
ALL = frozenset(range(8))
MEMS = frozenset({0})


def build(name: str, reserved: CpuSet) -> Policy:
    """The policy *name* with reserved CPUs."""
    entry = BUILTIN[name]
    return entry.build(entry.options.model_validate({"reservedCpus": reserved}))


@given(policies, reserved_sets, machines(), lives_with_found)
def test_hold_in_every_life(name: str, reserved: CpuSet, topology: Topology, life: list[Event]) -> None:
    """Whatever comes and goes, no invariant is violated."""
    for _, event, node in live(topology, build(name, reserved), life):
        assert violations(node, reserved) == [], event


@given(policies, reserved_sets, machines(), lives_with_found)
def test_step_is_deterministic(name: str, reserved: CpuSet, topology: Topology, life: list[Event]) -> None:
    """The same life leads to the same node."""
    runs = [[node for *_, node in live(topology, build(name, reserved), life)] for _ in range(2)]

    assert runs[0] == runs[1]


@given(policies, reserved_sets, machines(), lives, containers)
def test_departure_undoes_arrival(
    name: str, reserved: CpuSet, topology: Topology, life: list[Event], newcomer: Container
) -> None:
    """After a container came and went, everybody has what they had; of a balloon it may be other CPUs.

    A balloon that grew has as many CPUs as before, of those that it had meanwhile. Which of them came last is in no
    grant (see decision 15): ``{0}`` and CPU 1 make the same balloon as ``{1}`` and CPU 0.
    """
    policy = build(name, reserved)
    # What a pod keeps it may give up for a newcomer: test_kept.py has lives for that.
    strangers = [event for event in life if not isinstance(event, PodCreated)]
    before = [Node(topology), *(node for *_, node in live(topology, policy, strangers))][-1]
    newcomer = replace(newcomer, key="new", name="new")
    try:
        during = step(before, ContainerCreating(newcomer), policy).node
    except NotEnough:
        return
    after = step(during, ContainerGone("new"), policy).node
    if name == "balloons":
        after = with_earlier_cpus(before, during, after, during.grants["new"].pool)

    assert after == before


def with_earlier_cpus(before: Node, during: Node, after: Node, pool: str) -> Node:
    """*after* with the CPUs from *before* for all in the balloon *pool*, if it has as many, all for all of them."""
    inside = [key for key, grant in before.grants.items() if grant.pool == pool]
    if not inside:
        return after
    (old,), (most,), (new,) = ({node.grants[key].cpus for key in inside} for node in (before, during, after))
    assert old <= most, "it grew"
    assert new <= most, "it shrank"
    assert len(new) == len(old)
    return after.replace(
        grants={key: replace(grant, cpus=old) if key in inside else grant for key, grant in after.grants.items()}
    )


@given(reserved_sets, machines(), lives)
def test_static_leaves_nothing_idle(reserved: CpuSet, topology: Topology, life: list[Event]) -> None:
    """Under the static policy everybody who shares has every CPU that nobody owns."""
    for *_, node in live(topology, build("static", reserved), life):
        assert {grant.cpus for grant in node.grants.values() if not grant.exclusive} <= {node.shared_cpus}


class BadPolicy:
    """Gives the new container *grant*."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant

    def place(self, node: Node, container: Container) -> Change:
        """The bad grant."""
        return Change({container.key: self.grant})

    def release(self, node: Node, left: Grant) -> Change:
        """No other container moves."""
        return Change({})


@pytest.mark.parametrize(
    ("grant", "sentence"),
    [
        pytest.param(
            Grant(parse_cpuset("2-3"), MEMS, parse_cpuset("2-3")), "CPU 2 is exclusive to both", id="two-owners"
        ),
        pytest.param(
            Grant(ALL, MEMS),
            "new may run on CPU 2, exclusive to another container",
            id="shares-an-owned-cpu",
        ),
        pytest.param(Grant(frozenset(), MEMS), "new has no CPU", id="no-cpu"),
        pytest.param(Grant(ALL, MEMS, ALL), "no CPU is left for containers that share", id="empty-pool"),
        pytest.param(Grant(parse_cpuset("8"), MEMS), "new has CPU 8, which pods may not use", id="foreign-cpu"),
        pytest.param(
            Grant(parse_cpuset("1"), frozenset({5})), "new has NUMA node 5, which pods may not use", id="foreign-node"
        ),
        pytest.param(
            Grant(parse_cpuset("1"), MEMS, parse_cpuset("3")),
            "new has exclusive CPU 3, on which it may not run",
            id="owns-beyond",
        ),
        pytest.param(
            Grant(parse_cpuset("0"), MEMS, parse_cpuset("0")),
            "new has exclusive use of reserved CPU 0",
            id="owns-reserved",
        ),
    ],
)
def test_bad_layouts_are_noticed(grant: Grant, sentence: str) -> None:
    """A policy that breaks an invariant is caught with a sentence that names container and CPUs."""
    owner = Grant(parse_cpuset("2"), MEMS, parse_cpuset("2"))
    node = Node(machine(cores=8, threads=1), containers={"own": Container(key="own", pod="s", name="own")})
    node = node.replace(grants={"own": owner})
    assert violations(node, frozenset({0})) == []

    after = step(node, ContainerCreating(Container(key="new", pod="s", name="new")), BadPolicy(grant)).node

    assert any(text.startswith(sentence) for text in violations(after, frozenset({0})))


@pytest.mark.parametrize(
    ("containers_left", "sentence"),
    [
        pytest.param({}, "unknown container c has a place", id="gone"),
        pytest.param(
            {"c": Container(key="c", pod="s", name="main", state=ContainerState.EXITED)},
            "main has a place, but has exited",
            id="exited",
        ),
    ],
)
def test_leaks_are_noticed(containers_left: dict[str, Container], sentence: str) -> None:
    """A place that outlives its container is found."""
    node = Node(machine(), containers=containers_left, grants={"c": Grant(parse_cpuset("0"), MEMS)})

    assert violations(node) == [sentence]


def test_policies_are_exercised() -> None:
    """The lives above do place exclusively: the property tests are about something."""
    policy = build("static", frozenset())
    newcomer = Container(key="r", pod="s", name="c", qos=QosClass.GUARANTEED, cpu_milli=2000)
    node = step(Node(machine()), ContainerCreating(newcomer), policy).node

    assert len(node.exclusive_cpus) == 2
    assert Options().reserved_cpus == frozenset()


def test_who_waits_for_room_may_find_some() -> None:
    """By CRI-RM's count a node is full as soon as who may use it could fill it: its users leave it for good."""
    topology = machine(nodes=2, cores=4, threads=1)
    half = topology.nodes[0].memory_bytes // 2
    old = Container(key="wide", pod="p", name="wide", qos=QosClass.GUARANTEED, cpu_milli=100, memory_limit_bytes=half)
    here, newcomer = replace(old, key="here", name="here"), replace(old, key="new", name="new")
    shared = frozenset(topology.cpus)
    grants = {"wide": Grant(shared, topology.mems), "here": Grant(topology.nodes[0].cpus, frozenset({0}))}
    node = Node(topology, containers={"wide": old, "here": here}, grants=grants)
    entry = BUILTIN["topology-aware"]
    policy = entry.build(entry.options.model_validate({"reservedCpus": "", "rules": "crirm"}))
    during = step(node, ContainerCreating(newcomer), policy).node
    after = step(during, ContainerGone("new"), policy).node
    assert after.grants["here"].mems != node.grants["here"].mems, "else this tests nothing"

    assert list(departure_undoes_arrival(node, newcomer, policy)) == []


def test_who_waits_for_room_on_the_part_that_the_policy_uses_may_find_some() -> None:
    """Memory of an earlier policy counts there, though on the whole machine it has room elsewhere."""
    topology = machine(nodes=3, cores=2, threads=1)
    one = topology.nodes[0].memory_bytes
    hbm = NumaNode(3, frozenset(), one, kind=MemoryKind.HBM)
    topology = replace(topology, nodes=(*topology.nodes, hbm), mems=parse_cpuset("0-3"), distances=())
    sizes = {"outer": one * 6 // 10, "wide": one * 6 // 10, "here": one * 3 // 10}
    mems = {"outer": "0,2", "wide": "0-1", "here": "0-1"}
    old = {
        key: Container(key=key, pod="p", name=key, memory_limit_bytes=size, cpu_milli=100)
        for key, size in sizes.items()
    }
    grants = {key: Grant(parse_cpuset("0-3"), parse_cpuset(nodes)) for key, nodes in mems.items()}
    node = Node(topology, containers=old, grants=grants)
    newcomer = Container(
        key="new", pod="q", name="new", qos=QosClass.BURSTABLE, cpu_milli=3000, memory_limit_bytes=one // 2
    )
    entry = BUILTIN["topology-aware"]
    file = {"availableResources": {"cpu": "cpuset:0-3"}, "reservedCpus": "", "rules": "crirm"}
    policy = entry.build(entry.options.model_validate(file))
    after = step(step(node, ContainerCreating(newcomer), policy).node, ContainerGone("new"), policy).node
    assert after.grants["here"].mems != node.grants["here"].mems, "else this tests nothing"

    assert list(departure_undoes_arrival(node, newcomer, policy)) == []
