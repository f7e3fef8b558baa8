"""What pods say about hiding threads is read once for each container, and anew where it may differ."""

from dataclasses import replace

import pytest

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.options import plain
from criproxy.placement.options.pod_wishes import hiding_of
from criproxy.placement.policies.balloons import BalloonsPolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from tests.placement.alloc.steps import steps_of
from tests.placement.built import policy_of

OLD = "criproxy.io/hide-hyperthreads"
POLICIES = [
    pytest.param(policy_of("topology-aware", {"reservedCpus": "0"}), id="topology-aware"),
    pytest.param(policy_of("balloons", {"reservedCpus": "0"}), id="balloons"),
]


def pod(name: str, text: str) -> Pod:
    """A pod that says in the old form whose threads are hidden."""
    return Pod(key=name, uid=name, name=name, namespace="shop", annotations={OLD: text})


def asking(of: str, milli: int) -> Container:
    """A container of a Guaranteed pod."""
    return Container(key=f"{of}-main", pod=of, name="main", namespace="shop", pod_name=of, qos=QosClass.GUARANTEED,
                     cpu_milli=milli, cpu_limit_milli=milli)  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_another_pod_makes_nobody_read_the_documents_of_others(policy: TopologyAwarePolicy | BalloonsPolicy) -> None:
    """However many pods have long ones: more than are kept here."""
    names = [f"p{number:03d}" for number in range(140)]
    long = {name: "{" + ", ".join(f"{name}{n:04d}: x" for n in range(250)) + ", main: 'true'}" for name in names}
    assert len(long) > (plain._long.cache_info().maxsize or 0)
    node = Node(machine(nodes=2, cores=32, threads=2))
    for name in names:
        node = step(node, PodCreated(pod(name, long[name])), policy).node
        node = step(node, ContainerCreating(asking(name, 500)), policy).node

    def another() -> None:
        for name in ("new0", "new1"):
            after = step(node, PodCreated(pod(name, "main: 'true'")), policy).node
            step(after, ContainerCreating(asking(name, 2000)), policy)

    another()
    assert steps_of(another, plain) < 1000


def test_answers_go_with_their_pods() -> None:
    """A pod that is started anew may say something else; and no pod that has gone is remembered."""
    hiding = hiding_of(TopologyAwareOptions())
    node = Node(machine(), pods={"a": pod("a", "main: true"), "b": pod("b", "main: [")})
    first, second = asking("a", 1000), asking("b", 1000)
    assert [hiding.hides(node, each) for each in (first, second, replace(first, name="other"))] == [True, None, None]
    assert sorted(hiding.annotated_pods(node)) == ["a", "b"]
    changed = node.replace(pods={"a": pod("a", "main: false"), "c": Pod(key="c")})
    assert [hiding.hides(changed, each) for each in (first, second)] == [False, None]
    assert list(hiding.annotated_pods(changed)) == ["a"]
    assert hiding.hides(node, first) is True
