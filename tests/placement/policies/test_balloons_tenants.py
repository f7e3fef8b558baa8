"""Who may name which balloon type; and an amount of reserved CPUs, which are those of the reserved balloon."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from criproxy.errors import BadAnnotation
from criproxy.model.cpuset import format_cpuset
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.balloons import BalloonsOptions
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine
from tests.placement.policies.balloons_world import World
from tests.placement.policies.test_balloons import of_type, world

GOLD = {"name": "gold", "minCPUs": 2, "maxCPUs": 4, "annotationNamespaces": ["finance", "team-*"]}


@pytest.mark.parametrize("namespace", ["finance", "team-a"])
def test_a_namespace_of_the_list_may_name_the_type(namespace: str) -> None:
    """With * and ? as in other lists."""
    node = world(GOLD)
    node.come("pod0", 500, namespace=namespace, **of_type("gold"))
    assert node.pool("pod0") == "gold[0]"


def test_a_pod_of_another_namespace_is_refused_with_a_sentence() -> None:
    """Silently to run elsewhere would be no help to its owner, who asked for something that is there."""
    with pytest.raises(
        BadAnnotation,
        match=r"container shop/pod0/pod0: annotation balloon\.balloons\.criproxy\.io names balloon type 'gold', "
        r"which only pods of the namespaces finance, team-\* may name",
    ):
        world(GOLD).come("pod0", 500, namespace="shop", **of_type("gold"))


def test_it_says_nothing_about_those_that_come_by_themselves() -> None:
    """The option namespaces is nri-plugins': whose containers go into such balloons without an annotation."""
    node = world({**GOLD, "namespaces": ["shop"]})
    node.come("pod0", 500, namespace="shop")
    assert node.pool("pod0") == "gold[0]"
    assert BalloonsOptions.model_validate({"balloonTypes": [GOLD]}).balloon_types[0].namespaces == ()


@pytest.mark.parametrize(
    ("options", "namespace", "pool"),
    [
        pytest.param({}, "shop", "default[0]", id="nobody-by-default"),
        pytest.param({}, "kube-system", "reserved[0]", id="those-that-are-there-anyway"),
        pytest.param({"reservedPoolNamespaces": ["mon*"]}, "monitor", "reserved[0]", id="by-the-option"),
        pytest.param({"annotations": {"allow": {"shop": ["*"]}}}, "shop", "reserved[0]", id="allowed"),
    ],
)
def test_the_reserved_balloon_is_named_only_where_it_is_allowed(
    options: dict[str, Any], namespace: str, pool: str
) -> None:
    """As the reserved pool of the policy pools and prefer-reserved-cpus: its CPUs keep the node alive."""
    node = world(**options)
    node.come("pod0", 500, namespace=namespace, **of_type("reserved"))
    assert node.pool("pod0") == pool
    ignored = any("may not use the balloon type 'reserved'" in reason for reason in node.reasons)
    assert ignored == (pool == "default[0]")


@pytest.mark.parametrize(
    ("group", "namespace", "app", "shares"),
    [
        pytest.param("${pod/labels/app}-${pod/namespace}", "team-a", "x", True, id="same"),
        pytest.param("${pod/labels/app}-${pod/namespace}", "a", "x-team", False, id="label-reaches-into-namespace"),
        pytest.param(":,-pod/labels/app,pod/namespace", "a", "x-team", False, id="joint-key"),
        pytest.param("$pod/namespace", "team-a", "y", True, id="one-key"),
        pytest.param("all", "a", "y", True, id="no-key"),
    ],
)
def test_groups_compare_the_values_of_their_keys(group: str, namespace: str, app: str, *, shares: bool) -> None:
    """And not what they are put together: nobody chooses a label so that it looks like somebody else's namespace."""
    template = f"${{{group}}}" if group.startswith(":") else group
    node = world({"name": "g", "namespaces": ["*"], "groupBy": template, "preferNewBalloons": True, "maxCPUs": 2})
    node.come("pod0", 500, namespace="team-a", labels={"app": "x"})
    node.come("pod1", 500, namespace=namespace, labels={"app": app})
    assert (node.pool("pod0") == node.pool("pod1")) is shares


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


@pytest.mark.parametrize("rules", ["nri", "crirm"])
def test_isolated_cpus_are_not_those_of_an_amount(rules: str) -> None:
    """CPUs that the kernel isolates are reserved last, and the reserved balloon is not on them, either."""
    topology = replace(machine(nodes=1, cores=4, threads=1), isolated_cpus=frozenset({0}))
    world = World(topology, {"reservedResources": {"cpu": 1}, "balloonTypes": ONE, "rules": rules})

    assert world.come("sys", 500, namespace="kube-system") == format_cpuset(world.policy.options.reserved(topology))
