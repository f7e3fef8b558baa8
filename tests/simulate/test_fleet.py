"""A load on many nodes alike."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.workload import QosClass
from criproxy.simulate.fleet import Fleet, played, together
from criproxy.simulate.load import Kind, Spec
from criproxy.simulate.machines import machine
from criproxy.simulate.scenario.pods import Amounts, ContainerPlan, PodPlan

PLAN = PodPlan("p", "default", QosClass.GUARANTEED, (ContainerPlan("c", Amounts(1000, 1000, 1 << 20, 1 << 20)),))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Nodes with two policies."""
    policies = {name: tmp_path / f"{name}.yaml" for name in ("static", "none")}
    for name, path in policies.items():
        path.write_text(f"policy: {name}\n")
    return Fleet("test", Spec((Kind(PLAN, 1, 60.0),), seed=5, duration_s=600), machine(2), policies, "node")


def test_each_node_has_the_next_seed(fleet: Fleet) -> None:
    """So the second of a fleet is the first of one that begins a seed later; only the first has pictures."""
    second = fleet.play_node(1)
    first = replace(fleet, spec=replace(fleet.spec, seed=6)).play_node(0)

    assert second.outcomes == tuple(replace(outcome, samples=()) for outcome in first.outcomes)
    assert first.outcomes[0].samples
    assert first.outcomes != fleet.play_node(0).outcomes


def test_processes_change_nothing(fleet: Fleet) -> None:
    """What workers find, in the order of the nodes, is what one process finds."""
    with played(fleet, 3) as under_way:
        found = [node.result() for node in under_way]

    assert found == [fleet.play_node(index) for index in range(3)]


def test_scores_are_means_over_nodes(fleet: Fleet) -> None:
    """And counts are sums, for each policy by itself."""
    nodes = [fleet.play_node(index) for index in range(2)]

    static, none = together(nodes)

    assert (static.name, none.name) == ("static", "none")
    assert static.asked == sum(node.outcomes[0].asked for node in nodes) == none.asked
    means = [node.outcomes[0].mean.owned_cpus for node in nodes]
    assert static.mean.owned_cpus == pytest.approx(sum(means) / 2)
    assert none.mean.owned_cpus == 0
