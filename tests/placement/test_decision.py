"""Updates fall out of the comparison of two layouts; which of them move containers."""

import pytest

from criproxy.api.views.candidates import moved
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.decision import Decision, Update, updates_between
from criproxy.simulate.hosts import machine

ZERO, ONE = frozenset({0}), frozenset({1})
MEMS = frozenset({0})


EIGHT = machine(cores=8, threads=1)


def grant(cpus: str, exclusive: str = "", mems: str = "0") -> Grant:
    """A grant in kernel notation."""
    return Grant(parse_cpuset(cpus), parse_cpuset(mems), parse_cpuset(exclusive))


def node_with(grants: dict[str, Grant]) -> Node:
    """Running containers with these grants in force."""
    containers = {key: Container(key=key, pod="s", name=key, state=ContainerState.RUNNING) for key in grants}
    applied = {key: Applied(g.cpus, g.mems) for key, g in grants.items()}
    return Node(EIGHT, containers=containers, grants=grants, applied=applied)


def test_only_cpus_and_memory_count() -> None:
    """A container whose pool gets another name is updated, and stays where it is; the list of who moves agrees."""
    before = node_with({name: Grant(ZERO, MEMS, pool="a") for name in ("name", "cpus", "mems", "same")})
    changed = {"name": Grant(ZERO, MEMS, pool="b"), "cpus": Grant(ONE, MEMS, pool="a"), "mems": Grant(ZERO, ONE)}
    after = node_with({**before.grants, **changed})

    decision = Decision(after, updates_between(before, after))

    assert {update.key for update in decision.updates} == {"name", "cpus", "mems"}
    assert {update.key for update in decision.moving(before)} == {"cpus", "mems"}
    assert {each["id"] for each in moved(before, decision)} == {"cpus", "mems"}


@pytest.mark.parametrize(
    ("before", "after", "updates"),
    [
        pytest.param({"a": grant("0-3")}, {"a": grant("0-3")}, [], id="nothing-changed"),
        pytest.param({"a": grant("0-3")}, {"a": grant("0-1")}, [Update("a", grant("0-1"))], id="shrink"),
        pytest.param({"a": grant("0-1")}, {"a": grant("0-3")}, [Update("a", grant("0-3"))], id="grow"),
        pytest.param(
            {"a": grant("0")}, {"a": grant("0", mems="0-1")}, [Update("a", grant("0", mems="0-1"))], id="mems"
        ),
        pytest.param({"a": grant("0-1")}, {"a": grant("0-1", "1")}, [Update("a", grant("0-1", "1"))], id="now-owns"),
        pytest.param(
            {"a": grant("0-1"), "b": grant("2-5")},
            {"a": grant("0-3"), "b": grant("4-5")},
            [Update("b", grant("4-5")), Update("a", grant("0-3"))],
            id="who-loses-comes-first",
        ),
        pytest.param(
            {"a": grant("0-1"), "b": grant("0-5"), "c": grant("6-7"), "d": grant("2")},
            {"a": grant("0-2"), "b": grant("0-6"), "c": grant("5"), "d": grant("3")},
            [Update(key, grant(cpus)) for key, cpus in [("c", "5"), ("d", "3"), ("a", "0-2"), ("b", "0-6")]],
            id="then-by-key",
        ),
        pytest.param(
            {"a": grant("0-1", "0-1")},
            {"a": grant("2-3", "2-3")},
            [Update("a", grant("2-3", "2-3"))],
            id="a-move-is-one",
        ),
        pytest.param({"a": grant("0-1")}, {}, [], id="gone"),
    ],
)
def test_order(before: dict[str, Grant], after: dict[str, Grant], updates: list[Update]) -> None:
    """Those that lose CPUs come first, and everybody appears once."""
    old = node_with(before)

    assert list(updates_between(old, old.replace(grants=after))) == updates
