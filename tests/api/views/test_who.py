"""Who may run on a CPU."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.api.views.situation import Situation
from criproxy.api.views.who import read_cpus, to_values
from criproxy.errors import UsageError
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Kept
from criproxy.model.node import Node
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerExited, UpdateApplied
from criproxy.simulate.hosts import machine
from tests.cli.queries.test_status import node_with
from tests.node.world import STATIC

NODE = node_with(3)
"""On CPU 64 one with an exclusive CPU, two on all others."""
OWNER, SHARER = f"{0:064x}", f"{1:064x}"


def rows(node: Node, cpus: str, reserved: frozenset[int] = frozenset()) -> list[dict[str, Any]]:
    """What is said of *cpus*."""
    return to_values(Situation(node=node, reserved=reserved), parse_cpuset(cpus))["rows"]  # type: ignore[no-any-return]


def names(row: dict[str, Any]) -> list[str]:
    """The ids of the containers of a row, short."""
    return [each["id"][-1] for each in row["containers"]]


def test_exclusive_and_shared_cpus_are_rows_of_their_own() -> None:
    """Neighbours of which the same is to be said are one row, on each NUMA node."""
    found = rows(NODE, "0-127")
    owned = next(iter(NODE.grants[OWNER].exclusive))

    assert sorted((row["numa_node"], row["kinds"][0], names(row)) for row in found) == [
        (0, "exclusive", ["0"]),
        (0, "shared", ["1", "2"]),
        (1, "shared", ["1", "2"]),
    ]
    exclusive = next(row for row in found if row["kinds"] == ["exclusive"])
    assert exclusive["cpus"] == str(owned)
    (container,) = exclusive["containers"]
    assert (container["exclusive"], container["desired"], container["applied"]) == (True, True, True)


def test_where_desired_and_applied_differ_both_are_encoded_in_thread() -> None:
    """One that is still on its old CPU is listed there, and where it belongs."""
    owned = next(iter(NODE.grants[OWNER].exclusive))
    node = step(NODE, UpdateApplied(SHARER, Applied(frozenset({owned}), frozenset({0}))), STATIC).node

    ((old,), (new, *_)) = rows(node, str(owned)), rows(node, "5")

    stays = next(each for each in old["containers"] if each["id"] == SHARER)
    comes = next(each for each in new["containers"] if each["id"] == SHARER)
    assert (stays["desired"], stays["applied"], stays["exclusive"]) == (False, True, False)
    assert (comes["desired"], comes["applied"]) == (True, False)
    assert comes["applied_cpus"] == str(owned)
    assert comes["desired_cpus"] == stays["desired_cpus"] == NODE_SHARED


NODE_SHARED = "0-63,65-127"


def test_an_exited_container_runs_nowhere() -> None:
    """Its CPU is free again."""
    owned = next(iter(NODE.grants[OWNER].exclusive))
    node = step(NODE, ContainerExited(OWNER), STATIC).node

    (row,) = rows(node, str(owned))
    assert OWNER not in {each["id"] for each in row["containers"]}
    assert row["kinds"] == ["shared", "free"]


@pytest.mark.parametrize(
    ("cpu", "kinds", "numa_node"),
    [
        pytest.param(0, ["shared", "reserved"], 0, id="reserved"),
        pytest.param(1, ["shared", "isolated"], 0, id="isolated"),
        pytest.param(2, ["forbidden"], 0, id="not-for-pods"),
        pytest.param(3, ["shared", "free"], 0, id="free"),
        pytest.param(8, ["offline"], None, id="offline"),
        pytest.param(99, ["absent"], None, id="absent"),
    ],
)
def test_what_else_a_cpu_is(cpu: int, kinds: list[str], numa_node: int | None) -> None:
    """Also CPUs without containers say what they are."""
    topology = machine(nodes=1, cores=8, threads=1)
    topology = replace(
        topology,
        cpus=topology.cpus - {2},
        isolated_cpus=frozenset({1}),
        offline_cpus=frozenset({8}),
    )
    (row,) = rows(Node(topology), str(cpu), reserved=frozenset({0}))

    assert (row["kinds"], row["numa_node"], row["containers"]) == (kinds, numa_node, [])


def test_for_whom_a_cpu_is_kept() -> None:
    """It is exclusive to a pod whose containers have ended."""
    node = Node(machine(nodes=1, cores=4, threads=1), kept={"uid-1": Kept({"main": frozenset({2})})})

    (row,) = rows(node, "2")
    assert (row["kinds"], row["kept"], row["containers"]) == (["exclusive"], ["uid-1"], [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "Name one or more", id="none"),
        pytest.param(" ", "Name one or more", id="blank"),
        pytest.param("x", "'x' is neither an id nor a range", id="word"),
        pytest.param("3-1", "runs backwards", id="backwards"),
        pytest.param("-1", "neither an id nor a range", id="negative"),
        pytest.param("9" * 30, "beyond the largest id", id="huge"),
        pytest.param("1," * 5000, "too many CPUs", id="long"),
        pytest.param("\x1b[2J", "neither an id nor a range", id="hostile"),
    ],
)
def test_what_is_no_list_of_cpus(text: str, said: str) -> None:
    """The mistake is told in a sentence that `criproxy` prints as text."""
    with pytest.raises(UsageError) as caught:
        read_cpus(text)
    assert said in str(caught.value)


@given(st.frozensets(st.integers(0, 200), min_size=1))
def test_every_cpu_that_is_asked_for_is_in_one_row(cpus: frozenset[int]) -> None:
    """No CPU is left out or told of twice, and absent ones are the last row."""
    found = to_values(Situation(node=NODE), cpus)["rows"]
    told = [cpu for row in found for cpu in parse_cpuset(row["cpus"])]

    assert sorted(told) == sorted(cpus)
    assert [row["kinds"] == ["absent"] for row in found[:-1]] == [False] * (len(found) - 1)
