"""What becomes of containers when a policy file takes CPUs away from availableResources."""

from typing import Any

import pytest

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import GIB, machine
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=4, threads=1)  # node 0: 0-3
OPTIONS: dict[str, dict[str, Any]] = {
    "static": {},
    "topology-aware": {},
    "balloons": {"balloonTypes": [{"name": "database", "minCPUs": 1, "maxCPUs": 4}]},
    "pools": {"pools": [{"name": "alone", "exclusive": True, "cpu": 1, "instances": 2}]},
}
"""Of every policy that places containers, beside those that all of them have."""
WISHES = {"pool.podpools.criproxy.io/pod": "alone", "balloon.balloons.criproxy.io/pod": "database"}
"""The annotations of a pod that owns CPUs under `pools`, or has a balloon of its own."""


def build(name: str, available: CpuSet = MACHINE.cpus) -> Policy:
    """The policy *name* on the *available* CPUs."""
    options = {"reservedCpus": "0", "availableResources": {"cpu": f"cpuset:{format_cpuset(available)}"}}
    return policy_of(name, {**options, **OPTIONS[name]})


def came(node: Node, policy: Policy, name: str, cpus: float, *, wishes: bool = False) -> Node:
    """The node after a pod of one container has come."""
    qos = QosClass.GUARANTEED if cpus >= 1 else QosClass.BURSTABLE
    pod = Pod(key=f"s-{name}", name=name, namespace="default", annotations=WISHES if wishes else {})
    sizes = Sizes(cpu_milli=int(cpus * 1000), cpu_limit_milli=int(cpus * 1000), memory_limit_bytes=GIB)
    new = Container(key=f"r-{name}", pod=pod.key, name="main", pod_name=name, qos=qos).resized(sizes)
    for event in (
        ev.PodCreated(pod),
        ev.ContainerCreating(new),
        ev.ContainerCreated(new.key, name),
        ev.ContainerStarted(name),
    ):
        node = step(node, event, policy).node
    return node


def before(name: str) -> Node:
    """A node with two owners, if the policy has these, and two that share."""
    node, policy = Node(MACHINE), build(name)
    node = came(node, policy, "first", 1, wishes=True)
    node = came(node, policy, "shares", 0.5)
    node = came(node, policy, "second", 1, wishes=True)
    return came(node, policy, "also-shares", 0.1)


def used(node: Node) -> CpuSet:
    """The CPUs on which anybody may run."""
    return frozenset().union(*(grant.cpus | grant.exclusive for grant in node.grants.values()))


every_policy = pytest.mark.parametrize("name", OPTIONS)
every_cpu = pytest.mark.parametrize("lost", sorted(MACHINE.cpus - {0}))


def test_every_policy_is_here() -> None:
    """All that place containers."""
    assert set(OPTIONS) == set(BUILTIN) - {"none"}


@every_policy
@every_cpu
def test_with_apply_all_nobody_stays_on_it(name: str, lost: int) -> None:
    """Who owned it owns another one, and who shared it shares the others; all have a place still."""
    node, available = before(name), MACHINE.cpus - {lost}

    after = step(node, ev.PolicyChanged(True, "fewer"), build(name, available)).node

    assert used(after) <= available
    assert violations(after) == []
    owned = {key: len(grant.exclusive) for key, grant in node.grants.items()}
    assert {key: len(grant.exclusive) for key, grant in after.grants.items()} == owned


@every_policy
@every_cpu
def test_with_apply_new_who_is_there_stays(name: str, lost: int) -> None:
    """Nobody moves, and who comes then does not get it."""
    node, available = before(name), MACHINE.cpus - {lost}

    changed = step(node, ev.PolicyChanged(False, "fewer"), build(name, available)).node
    after = came(changed, build(name, available), "new", 0.2)

    assert changed.grants == node.grants
    assert after.grants["new"].cpus <= available
    assert violations(after) == []
    assert {key: after.grants[key].exclusive for key in node.grants} == {
        key: grant.exclusive for key, grant in node.grants.items()
    }


@every_policy
@every_cpu
def test_who_is_resized_leaves_it(name: str, lost: int) -> None:
    """A container that is placed anew for another size gets available CPUs alone."""
    node, available = before(name), MACHINE.cpus - {lost}
    policy = build(name, available)
    changed = step(node, ev.PolicyChanged(False, "fewer"), policy).node
    sizes = Sizes(cpu_milli=2000, cpu_limit_milli=2000, memory_limit_bytes=GIB)

    after = step(changed, ev.ContainerResized("first", sizes), policy).node

    assert after.grants["first"].cpus <= available
    assert violations(after) == []
