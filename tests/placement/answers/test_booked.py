"""What is booked and available on each NUMA node adds up to what is on the machine, whatever runs under any policy."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.hardware import HugePageRequest, HugePages
from criproxy.model.node import Node
from criproxy.model.resources import Interval
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement import events as ev
from criproxy.placement.alloc.booked_cpus import BookedCpus, booked_cpus
from criproxy.placement.answers.booked import BookedMemory, booked_memory, booked_pages
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import GIB, machine
from lab.properties.lives import Case, cases
from tests.placement.built import policy_of
from tests.placement.lives import live

TWO = machine(nodes=2, cores=4, threads=1)
"""CPUs 0-3 and 4-7, 16 GiB each."""
WEB = Container(
    key="web", pod="web", name="main", qos=QosClass.BURSTABLE, cpu_milli=1000, state=ContainerState.RUNNING,
    memory_request_bytes=Interval(GIB, 3 * GIB),
)  # fmt: skip


def states(case: Case, name: str) -> Iterator[tuple[Node, CpuSet]]:
    """Yield the node after each event of a life under one policy, and the CPUs that it reserves."""
    policy = policy_of(name, case.files[name])
    reserved = options_of(policy).reserved(case.topology)
    life = (event for event in case.life if not isinstance(event, ev.PolicyChanged))
    for _, _, node in live(case.topology, policy, life):
        yield node, reserved & node.topology.cpus


def shares(node: Node, reserved: CpuSet) -> Iterator[tuple[int, CpuSet]]:
    """Yield what each container asks of CPUs that it shares, and these CPUs, as docs/agent.md says it."""
    usable = node.topology.cpus - node.exclusive_cpus - reserved - node.topology.isolated_cpus
    for key, each in node.containers.items():
        grant, applied = node.grants.get(key), node.applied.get(key)
        cpus = grant.cpus if grant else applied.cpus if applied else node.topology.cpus
        own = len(grant.exclusive) if grant else 0
        if each.state is not ContainerState.EXITED and each.qos is not QosClass.BEST_EFFORT and cpus & usable:
            yield max(0, each.cpu_milli - 1000 * own), cpus & usable


def check_cpus(node: Node, reserved: CpuSet) -> None:
    """Check all that must be true about the CPUs."""
    found, asked = booked_cpus(node, reserved), list(shares(node, reserved))
    topology = node.topology
    assert found.keys() == {each.id for each in topology.nodes}
    assert sum(each.allocatable_milli for each in found.values()) == 1000 * len(topology.cpus - reserved)
    assert NO_CPUS.union(*(each.exclusive for each in found.values())) == node.exclusive_cpus & topology.cpus
    assert sum(each.shared_milli for each in found.values()) == sum(milli for milli, _ in asked)
    for numa in topology.nodes:
        exact = sum((Fraction(milli * len(cpus & numa.cpus), len(cpus)) for milli, cpus in asked), Fraction())
        assert abs(found[numa.id].shared_milli - exact) < len({cpus for _, cpus in asked}) + 1
        assert 0 <= found[numa.id].available_milli <= found[numa.id].allocatable_milli
    left = 1000 * len(topology.cpus - reserved - node.exclusive_cpus) - sum(milli for milli, _ in asked)
    available = [each.available_milli for each in found.values()]
    assert sum(available) >= left
    if all(available):
        assert sum(available) == left


def check_memory(node: Node) -> None:
    """Check all that must be true about the memory."""
    found, topology = booked_memory(node), node.topology
    asked = [each for each in node.containers.values() if each.state is not ContainerState.EXITED]
    expected = sum(
        (each.memory_request_bytes.low + each.memory_request_bytes.high) // 2
        if each.memory_request_bytes
        else each.memory_limit_bytes or 0
        for each in asked
    )
    assert sum(each.capacity_bytes for each in found.values()) == topology.capacity_bytes
    assert sum(each.allocatable_bytes for each in found.values()) == topology.memory_bytes(topology.mems)
    assert sum(each.requested_bytes for each in found.values()) == expected
    assert all(not found[numa].requested_bytes for numa in found.keys() - topology.mems)
    assert all(0 <= each.available_bytes <= each.allocatable_bytes for each in found.values())


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_the_parts_are_the_machine(name: str) -> None:
    """On random machines, under random options, after each event of random lives."""

    @settings(max_examples=40, deadline=None)
    @given(cases({name: BUILTIN[name]}))
    def every_state(case: Case) -> None:
        for node, reserved in states(case, name):
            check_cpus(node, reserved)
            check_memory(node)

    every_state()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2 * GIB), st.sampled_from(["0", "1", "0-1", ""])), max_size=6),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_huge_pages_are_booked_where_containers_may_use_them(
    asked: list[tuple[int, str]], total: int, free: int
) -> None:
    """As other memory, and never more is available than nobody uses."""
    size = 2 << 20
    containers = {
        str(number): Container(
            key=str(number), pod="p", name="n", state=ContainerState.RUNNING, huge_pages=(HugePageRequest(size, limit),)
        )
        for number, (limit, _) in enumerate(asked)
    }
    grants = {str(number): Grant(TWO.cpus, parse_cpuset(mems)) for number, (_, mems) in enumerate(asked)}
    pages = (HugePages(0, size, total, min(free, total)), HugePages(1, size, 0, 0), HugePages(1, 1 << 30, 2, 1))
    found = booked_pages(Node(TWO, containers=containers, grants=grants), pages)

    assert found[1][1 << 30] == BookedMemory(capacity_bytes=2 * GIB, allocatable_bytes=2 * GIB, free_bytes=GIB)
    assert (size in found.get(0, {})) == bool(total)
    if total:
        node = found[0][size]
        assert node.capacity_bytes == total * size
        assert node.available_bytes == max(0, min(total * size - node.requested_bytes, min(free, total) * size))
        assert node.requested_bytes <= sum(limit for limit, mems in asked if mems != "1")


@pytest.mark.parametrize(
    ("cpus", "milli", "expected"),
    [
        pytest.param("1-3", 1000, [1000, 0], id="on-one-node"),
        pytest.param("1-7", 1000, [429, 571], id="in-proportion-to-its-cpus"),
        pytest.param("0", 1000, [0, 0], id="only-on-reserved-cpus"),
        pytest.param("0-7", 7, [3, 4], id="without-the-reserved-one"),
        pytest.param("1,4", 1, [1, 0], id="a-rest-goes-to-the-first"),
    ],
)
def test_a_container_counts_where_it_may_run(cpus: str, milli: int, expected: list[int]) -> None:
    """In proportion to the number of its CPUs on each node; CPU 0 is reserved."""
    web, grant = replace(WEB, cpu_milli=milli), Grant(parse_cpuset(cpus), TWO.mems)
    node = Node(TWO, containers={"web": web}, grants={"web": grant})
    found = booked_cpus(node, parse_cpuset("0"))

    assert [found[number].shared_milli for number in (0, 1)] == expected


def test_nothing_is_less_than_nothing() -> None:
    """A node that is asked for more than it has has nothing left."""
    booked = BookedCpus(cpus=parse_cpuset("0-3"), reserved=parse_cpuset("0"), exclusive=parse_cpuset("0-2"))

    assert (booked.allocatable_milli, booked.available_milli) == (3000, 1000)
    assert BookedCpus(cpus=parse_cpuset("0-3"), shared_milli=9000).available_milli == 0
    assert BookedMemory(capacity_bytes=5, allocatable_bytes=5, requested_bytes=9).available_bytes == 0


def test_a_burstable_container_counts_with_the_middle_of_what_it_may_request() -> None:
    """On the NUMA nodes of its grant, by their sizes; where it may be anywhere without one."""
    granted = Node(TWO, containers={"web": WEB}, grants={"web": Grant(TWO.cpus, parse_cpuset("1"))})
    unplaced = Node(TWO, containers={"web": WEB})

    assert [each.requested_bytes for each in booked_memory(granted).values()] == [0, 2 * GIB]
    assert [each.requested_bytes for each in booked_memory(unplaced).values()] == [GIB, GIB]
