"""A resize that leaves the CPU size alone places nothing anew: memory is counted, and CPUs stay as they are."""

from collections.abc import Mapping

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import CpuQuota, Grant
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import Container, ContainerState, QosClass, Sizes
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerResized
from criproxy.placement.policies.none import Fallback
from criproxy.simulate.hosts import GIB, machine
from tests.laws import memory_is_promised_once
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=4, threads=1, memory_bytes=8 * GIB)
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "none": {},
    "static": {"reservedCpus": "0", "cpuQuota": "lift"},
    "topology-aware": {"reservedCpus": "0", "cpuQuota": "lift"},
    "balloons": {"balloonTypes": [{"name": "full", "minCPUs": 2}]},
    "pools": {"reservedCpus": "0", "pools": [{"name": "rt", "exclusive": True, "cpuLists": [{"cpuset": "6-7"}]}]},
}


POLICIES = {**{name: policy_of(name, options) for name, options in OPTIONS.items()}, "fallback": Fallback()}


def sizes(cpus: int, memory_bytes: int) -> Sizes:
    """What a Guaranteed container asks for."""
    return Sizes(
        cpu_milli=1000 * cpus,
        cpu_limit_milli=1000 * cpus,
        cpu_quota=CfsQuota(100_000 * cpus, 100_000),
        memory_limit_bytes=memory_bytes,
        memory_request_bytes=Interval(memory_bytes, memory_bytes),
    )


def guaranteed(key: str, cpus: int, memory_bytes: int = GIB) -> Container:
    """A running container of a Guaranteed pod."""
    container = Container(key=key, pod="s", name=key, qos=QosClass.GUARANTEED, state=ContainerState.RUNNING)
    return container.resized(sizes(cpus, memory_bytes))


def crowded() -> Node:
    """All but CPUs 0 and 7 are exclusive, and `a`, which asks for four, shares these."""
    containers = {"a": guaranteed("a", 4), "b": guaranteed("b", 3), "c": guaranteed("c", 3)}
    grants = {
        "a": Grant(parse_cpuset("0,7"), parse_cpuset("0-1")),
        "b": Grant(parse_cpuset("1-3"), parse_cpuset("0"), parse_cpuset("1-3"), quota=CpuQuota.LIFTED),
        "c": Grant(parse_cpuset("4-6"), parse_cpuset("1"), parse_cpuset("4-6")),
    }
    return Node(MACHINE, containers=containers, grants=grants)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("key", ["a", "b"])
def test_more_memory_moves_no_cpu(name: str, key: str) -> None:
    """It is never refused, nobody's place changes, and the node knows the new size."""
    node = crowded()
    cpus = node.containers[key].cpu_milli // 1000
    decision = step(node, ContainerResized(key, sizes(cpus, 2 * GIB)), POLICIES[name])
    assert dict(decision.node.grants) == dict(node.grants)
    assert decision.node.containers[key].memory_limit_bytes == 2 * GIB
    assert decision.updates == ()


@pytest.mark.parametrize("name", POLICIES)
def test_more_memory_than_its_nodes_have_widens_them(name: str) -> None:
    """Memory is counted anew: the container gets more NUMA nodes, and keeps its exclusive CPUs and its quota."""
    node = crowded()
    decision = step(node, ContainerResized("b", sizes(3, 12 * GIB)), POLICIES[name])
    was, has = node.grants["b"], decision.node.grants["b"]
    assert format_cpuset(has.mems) == "0-1"
    assert (has.cpus, has.exclusive, has.quota) == (was.cpus, was.exclusive, was.quota)
    assert list(memory_is_promised_once(node, decision.node)) == []
    assert decision.sentences


@pytest.mark.parametrize("name", POLICIES)
def test_another_cpu_size_is_placed_anew(name: str) -> None:
    """With the memory as it was: the policy is asked."""
    assert placing(crowded(), ContainerResized("b", sizes(2, GIB)), POLICIES[name]) is not None


def test_more_cpus_may_still_be_refused() -> None:
    """And fewer are given back."""
    assert (
        len(step(crowded(), ContainerResized("b", sizes(2, GIB)), POLICIES["static"]).node.grants["b"].exclusive) == 2
    )
    with pytest.raises(NotEnough):
        step(crowded(), ContainerResized("a", sizes(5, 2 * GIB)), POLICIES["static"])


def test_nothing_is_compared_for_a_place_that_nobody_chooses() -> None:
    """`explain` has no candidates of a resize of memory alone."""
    assert placing(crowded(), ContainerResized("a", sizes(4, 2 * GIB)), POLICIES["static"]) is None
