"""A container may grow, whoever is asked about it: it is not killed because it is kept to too few NUMA nodes."""

from collections.abc import Mapping

import pytest

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerResized
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.policies.template import TemplateOptions, TemplatePolicy
from criproxy.simulate.hosts import GIB, machine
from tests.laws import memory_is_promised_once
from tests.placement.built import policy_of

MACHINE = machine(nodes=4, cores=2, threads=1, memory_bytes=4 * GIB)
PRESERVE = {"preserve": {"matchExpressions": [{"key": "name", "operator": "Exists"}]}}
POLICIES: Mapping[str, Policy] = {
    "none": NonePolicy(Options()),
    "left alone by balloons": policy_of("balloons", PRESERVE),
    "template": TemplatePolicy(TemplateOptions.model_validate({})),
    "fallback": Fallback(),
    "topology-aware": policy_of("topology-aware"),
}


def kept_to(mems: str, gib: int) -> Node:
    """An earlier policy has put it beside another one that has 2 GiB of node 1."""
    sizes = {"a": gib * GIB, "b": 2 * GIB}
    containers = {
        key: Container(key=key, pod="s", name=key, qos=QosClass.BURSTABLE, memory_limit_bytes=size)
        for key, size in sizes.items()
    }
    grants = {
        "a": Grant(parse_cpuset("0-1"), parse_cpuset(mems)),
        "b": Grant(parse_cpuset("2-3"), parse_cpuset("1")),
    }
    return Node(MACHINE, containers=containers, grants=grants)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("had", "gib", "expected"),
    [
        pytest.param("0", 3, "0", id="room"),
        pytest.param("0", 5, "0-3", id="more-than-there-is"),
        pytest.param("1", 2, "0-3", id="promised-to-another"),
        pytest.param("0-3", 20, "0-3", id="not-pinned"),
    ],
)
def test_it_gets_memory_from_more_nodes_if_it_must(name: str, had: str, gib: int, expected: str) -> None:
    """And the other one stays where it is."""
    node = kept_to(had, 1)
    decision = step(node, ContainerResized("a", Sizes(memory_limit_bytes=gib * GIB)), POLICIES[name])

    after = decision.node
    assert {key: format_cpuset(grant.mems) for key, grant in after.grants.items()} == {"a": expected, "b": "1"}
    assert list(memory_is_promised_once(node, after)) == []
    grown = "a has grown: memory from NUMA nodes 0-3" in decision.sentences
    assert grown == (expected != had)
    assert [update.key for update in decision.updates if update.grant.mems != node.grants[update.key].mems] == (
        ["a"] if expected != had else []
    )
