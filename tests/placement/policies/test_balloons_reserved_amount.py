"""An amount of reserved CPUs: the reserved balloon is on the CPUs of which all else says that they are reserved."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from criproxy.model.cpuset import format_cpuset
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from tests.placement.policies.balloons_world import World

ONE = [{"name": "a", "minCPUs": 1, "maxCPUs": 1, "namespaces": ["default"]}]
STATIC = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0"}))
CAME = (
    ("db", "default", QosClass.GUARANTEED, 1000),
    ("batch", "default", QosClass.BURSTABLE, 100),
    ("web", "default", QosClass.BURSTABLE, 100),
    ("ks", "kube-system", QosClass.BURSTABLE, 100),
)
RESERVED = [
    pytest.param({"reservedResources": {"cpu": 1}}, id="amount"),
    pytest.param({"reservedCpus": "0"}, id="named"),
]


def come(world: World, policy: Policy, containers: Iterable[tuple[str, str, QosClass, int]]) -> None:
    """Containers come under another *policy*: name, namespace, class and CPU in milli."""
    for name, namespace, qos, milli in containers:
        world.node = step(world.node, PodCreated(Pod(key=name, name=name, namespace=namespace)), policy).node
        limit = milli if qos is QosClass.GUARANTEED else None
        container = Container(key=name, pod=name, name=name, pod_name=name, namespace=namespace, qos=qos,
                              cpu_milli=milli, cpu_limit_milli=limit)  # fmt: skip
        world.node = step(world.node, ContainerCreating(container), policy).node


@pytest.mark.parametrize("reserved", RESERVED)
def test_balloons_take_over_where_everybody_is(reserved: dict[str, Any]) -> None:
    """From static on the same reserved CPU, nobody who fits is moved: the reserved balloon is on that CPU."""
    world = World(machine(nodes=1, cores=2, threads=1), {**reserved, "balloonTypes": ONE})
    come(world, STATIC, CAME)  # db owns CPU 1, all others are on CPU 0

    world.change(apply_all=True)

    assert world.balloons() == {"a[0]": "1", "reserved[0]": "0", "default[0]": ""}
    assert (world.cpus("db"), world.cpus("ks")) == ("1", "0")


@pytest.mark.parametrize("reserved", RESERVED)
@pytest.mark.parametrize("first", ["default", "kube-system"])
def test_newcomers_find_the_reserved_balloon_there(reserved: dict[str, Any], first: str) -> None:
    """Whoever comes first, the reserved balloon has the CPUs that status names as reserved."""
    world = World(machine(nodes=1, cores=4, threads=1), {**reserved, "balloonTypes": ONE})
    for name, namespace in sorted([("own", "default"), ("sys", "kube-system")], key=lambda each: each[1] != first):
        world.come(name, 500, namespace=namespace)

    named = world.policy.options.reserved(world.topology)
    assert world.cpus("sys") == world.balloons()["reserved[0]"] == format_cpuset(named)
    assert world.cpus("own") != world.cpus("sys")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2])
def test_it_is_there_after_any_other_policy(nodes: int, threads: int) -> None:
    """Whoever was placed before it by apply: all; where nobody of the reserved balloon was, it may be elsewhere."""
    topology = machine(nodes=nodes, cores=4, threads=threads)
    reserved = {"reservedResources": {"cpu": 2}}
    before = TopologyAwarePolicy(TopologyAwareOptions.model_validate(reserved))
    world = World(topology, {**reserved, "balloonTypes": ONE})
    come(world, before, CAME)

    world.change(apply_all=True)

    assert world.cpus("ks") == world.balloons()["reserved[0]"] == format_cpuset(before.options.reserved(topology))


@pytest.mark.parametrize("rules", ["nri", "crirm"])
def test_isolated_cpus_are_not_those_of_an_amount(rules: str) -> None:
    """CPUs that the kernel isolates are reserved last, and the reserved balloon is not on them, either."""
    topology = replace(machine(nodes=1, cores=4, threads=1), isolated_cpus=frozenset({0}))
    world = World(topology, {"reservedResources": {"cpu": 1}, "balloonTypes": ONE, "rules": rules})

    assert world.come("sys", 500, namespace="kube-system") == format_cpuset(world.policy.options.reserved(topology))
