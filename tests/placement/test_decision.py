"""Which updates of a decision move containers."""

from collections.abc import Mapping

from criproxy.api.views.candidates import moved
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.decision import Decision, updates_between
from criproxy.simulate.hosts import machine

ZERO, ONE = frozenset({0}), frozenset({1})
MEMS = frozenset({0})


def node(grants: Mapping[str, Grant]) -> Node:
    """One with a container for each grant."""
    containers = {key: Container(key=key, pod="p", name=key, reservation="r") for key in grants}
    return Node(machine(nodes=2, cores=2, threads=1), containers=containers, grants=dict(grants))


def test_only_cpus_and_memory_count() -> None:
    """A container whose pool gets another name is updated, and stays where it is; the list of who moves agrees."""
    before = node({name: Grant(ZERO, MEMS, pool="a") for name in ("name", "cpus", "mems", "same")})
    changed = {"name": Grant(ZERO, MEMS, pool="b"), "cpus": Grant(ONE, MEMS, pool="a"), "mems": Grant(ZERO, ONE)}
    after = node({**before.grants, **changed})

    decision = Decision(after, updates_between(before, after))

    assert {update.key for update in decision.updates} == {"name", "cpus", "mems"}
    assert {update.key for update in decision.moving(before)} == {"cpus", "mems"}
    assert {each["id"] for each in moved(before, decision)} == {"cpus", "mems"}
