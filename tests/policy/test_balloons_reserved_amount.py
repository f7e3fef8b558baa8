"""An amount of reserved CPUs: the reserved balloon is on the CPUs of which all else says that they are reserved."""

from typing import Any

import pytest

from criproxy.engine.events import ContainerCreating, PodCreated
from criproxy.engine.step import step
from criproxy.model.cpuset import format_cpuset
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.policy.static import StaticOptions, StaticPolicy
from criproxy.sim.machines import machine
from tests.policy.balloons_world import World

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


def under_static(world: World) -> None:
    """Containers come under the policy static: db owns CPU 1, all others are on CPU 0."""
    for name, namespace, qos, milli in CAME:
        world.node = step(world.node, PodCreated(Pod(key=name, name=name, namespace=namespace)), STATIC).node
        limit = milli if qos is QosClass.GUARANTEED else None
        container = Container(key=name, pod=name, name=name, pod_name=name, namespace=namespace, qos=qos,
                              cpu_milli=milli, cpu_limit_milli=limit)  # fmt: skip
        world.node = step(world.node, ContainerCreating(container), STATIC).node


@pytest.mark.parametrize("reserved", RESERVED)
def test_balloons_take_over_where_everybody_is(reserved: dict[str, Any]) -> None:
    """From static on the same reserved CPU, nobody who fits is moved: the reserved balloon is on that CPU."""
    world = World(machine(nodes=1, cores=2, threads=1), {**reserved, "balloonTypes": ONE})
    under_static(world)

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
