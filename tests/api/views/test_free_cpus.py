"""What `status` and `who` call free is what `fit` says has room as exclusive CPUs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from criproxy.api.views.fit import to_values as fit_values
from criproxy.api.views.situation import Situation
from criproxy.api.views.status import summary
from criproxy.api.views.who import to_values as who_values
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.answers.rehearsal import fit
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated, Released
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine

MACHINE = machine(nodes=2, cores=4, threads=1)
ISOLATED = replace(MACHINE, isolated_cpus=parse_cpuset("6-7"))


def made(policy: str, options: Mapping[str, Any]) -> Policy:
    """A policy with these options."""
    return BUILTIN[policy].build(BUILTIN[policy].options.model_validate(options))


def node_of(topology: Topology, by: Policy, shared_milli: int) -> Node:
    """A node on which a shared container has what it requests."""
    pod = Pod(key="p", uid="p", name="web", namespace="shop")
    web = Container(key="r", pod="p", name="web", qos=QosClass.BURSTABLE, cpu_milli=shared_milli, reservation="r")
    node = step(Node(topology), PodCreated(pod), by).node
    return step(node, ContainerCreating(web), by).node


def most_that_fit(node: Node, by: Policy) -> int:
    """How many exclusive CPUs the largest new container of a Guaranteed pod gets."""
    for count in range(len(node.topology.cpus), 0, -1):
        pod = Pod(key="new", uid="new", name="new", namespace="shop")
        asking = Container(
            key="n", pod="new", name="new", qos=QosClass.GUARANTEED, cpu_milli=count * 1000, reservation="n"
        )
        values = fit_values(fit(node, by, pod, asking))
        if values["fits"] and len(parse_cpuset(values["exclusive_cpus"])) == count:
            return count
    return 0


@pytest.mark.parametrize(
    ("policy", "options", "topology", "shared_milli", "free", "count"),
    [
        pytest.param("static", {"reservedCpus": "0"}, MACHINE, 100, "1-7", 7, id="static"),
        pytest.param("static", {}, MACHINE, 100, "0-7", 7, id="static-keeps-one-shared"),
        pytest.param("static", {"reservedCpus": "0"}, ISOLATED, 100, "1-7", 7, id="static-with-isolated"),
        pytest.param("static", {"reservedCpus": "0", "exclusiveFor": []}, MACHINE, 100, "", 0, id="static-for-nobody"),
        pytest.param(
            "static",
            {"reservedCpus": "4", "availableResources": {"cpu": "cpuset:4-6"}},
            *(MACHINE, 100, "5-6", 2),
            id="static-available",
        ),
        pytest.param("topology-aware", {"reservedCpus": "0"}, MACHINE, 0, "1-7", 6, id="topology-aware"),
        pytest.param("topology-aware", {"reservedCpus": "0"}, MACHINE, 2500, "1-7", 4, id="shared-ones-need-theirs"),
        pytest.param(
            "topology-aware",
            {"reservedCpus": "4", "availableResources": {"cpu": "exclude-cpuset:0-3"}},
            *(MACHINE, 0, "5-7", 2),
            id="topology-aware-available",
        ),
        pytest.param("topology-aware", {"reservedCpus": "0", "pinCPU": False}, MACHINE, 0, "", 0, id="not-pinned"),
        pytest.param("none", {}, MACHINE, 0, "", 0, id="none"),
    ],
)
def test_free_cpus_are_those_that_fit(
    policy: str, options: Mapping[str, Any], topology: Topology, shared_milli: int, free: str, count: int
) -> None:
    """As many in total, and `who` calls each of them free that `status` does."""
    by = made(policy, options)
    node = node_of(topology, by, shared_milli)
    situation = Situation(node=node, policy=policy, placer=by, reserved=options_of(by).reserved(topology))
    values = summary(situation)
    rows = who_values(situation, topology.cpus)["rows"]
    called_free = [parse_cpuset(row["cpus"]) for row in rows if "free" in row["kinds"]]

    assert (values["cpus"]["free"], values["cpu_counts"]["free"]) == (free, count)
    assert format_cpuset(frozenset[int]().union(*called_free)) == free
    assert most_that_fit(node, by) == count


def test_nothing_is_free_while_the_node_is_released() -> None:
    """No container gets a place then."""
    by = made("static", {"reservedCpus": "0"})
    node = step(node_of(MACHINE, by, 100), Released("a user", ""), by).node

    assert summary(Situation(node=node, placer=by))["cpu_counts"]["free"] == 0
    assert most_that_fit(node, by) == 0
