"""Updates go out in an order in which no CPU ever has two owners."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.engine.decision import Update
from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerStarted,
    Event,
    UpdateApplied,
)
from criproxy.engine.step import step
from criproxy.engine.updates import blockers, updates_between
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.policy.options import Options
from criproxy.policy.static import StaticPolicy
from criproxy.sim.machines import machine

MEMS = frozenset({0})
MACHINE = machine(cores=8, threads=1)


def grant(cpus: str, exclusive: str = "", mems: str = "0") -> Grant:
    """A grant in kernel notation."""
    return Grant(parse_cpuset(cpus), parse_cpuset(mems), parse_cpuset(exclusive))


def node_with(grants: dict[str, Grant], state: ContainerState = ContainerState.RUNNING) -> Node:
    """Containers with these grants, in force, in one state."""
    containers = {key: Container(key=key, pod="s", name=key, state=state) for key in grants}
    applied = {key: Applied(g.cpus, g.mems) for key, g in grants.items()}
    return Node(MACHINE, containers=containers, grants=grants, applied=applied)


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
            [Update("b", grant("4-5")), Update("a", grant("0-3"), ("b",))],
            id="grow-waits-for-the-shrink",
        ),
        pytest.param(
            {"a": grant("0-1"), "b": grant("2-5"), "c": grant("6-7")},
            {"a": grant("0-1,7"), "b": grant("2-3"), "c": grant("6")},
            [Update("b", grant("2-3")), Update("c", grant("6")), Update("a", grant("0-1,7"), ("c",))],
            id="grow-waits-for-none-but-that-shrink",
        ),
        pytest.param(
            {"a": grant("0-2"), "b": grant("3-5")},
            {"a": grant("1-3"), "b": grant("0,4-5")},
            [
                Update("a", grant("1-2")),
                Update("b", grant("4-5")),
                Update("a", grant("1-3"), ("b",)),
                Update("b", grant("0,4-5"), ("a",)),
            ],
            id="a-swap-goes-through-what-both-keep",
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
    """Those that give CPUs up come first, and a grow names those that it waits for."""
    old = node_with(before)

    assert list(updates_between(old, old.replace(grants=after))) == updates


def test_no_update_without_an_id() -> None:
    """A create in flight has no id yet: nothing can be sent to it."""
    old = node_with({"a": grant("0-3")})
    creating = old.replace(containers={"a": Container(key="a", pod="s", name="a", reservation="a")})

    assert updates_between(creating, creating.replace(grants={"a": grant("0-1")})) == ()


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        pytest.param(ContainerState.RUNNING, ("old",), id="running"),
        pytest.param(ContainerState.UNKNOWN, ("old",), id="may-run"),
        pytest.param(ContainerState.CREATED, (), id="not-started"),
        pytest.param(ContainerState.EXITED, (), id="exited"),
    ],
)
def test_an_owner_waits_for_those_still_on_its_cpus(state: ContainerState, waits: tuple[str, ...]) -> None:
    """A start waits for those that may run and have not given up its CPUs; not once they did."""
    node = node_with({"old": grant("0-7")}, state)
    node = node.replace(
        containers={**node.containers, "new": Container(key="new", pod="s", name="new", state=ContainerState.CREATED)},
        grants={"old": grant("0-5"), "new": grant("6-7", "6-7")},
        applied={**node.applied, "new": Applied(parse_cpuset("6-7"), MEMS)},
    )

    assert blockers(node, "new") == waits
    assert blockers(step(node, UpdateApplied("old", parse_cpuset("0-5"), MEMS), POLICY).node, "new") == ()


def test_a_start_waits_for_its_own_update() -> None:
    """A container whose create message promised CPUs that another owns now is updated before it starts."""
    node = node_with({"late": grant("0-7")}, ContainerState.CREATED).replace(grants={"late": grant("0-5")})

    assert blockers(node, "late") == ("late",)
    assert blockers(node, "stranger") == ()


POLICY = StaticPolicy(Options())


def steps_of(number: int) -> Iterator[Event]:
    """The life of one of four containers; the odd ones own a CPU."""
    key, runtime_id = f"r{number}", f"id{number}"
    qos = QosClass.GUARANTEED if number % 2 else QosClass.BURSTABLE
    yield ContainerCreating(Container(key=key, pod="s", name=key, qos=qos, cpu_milli=1000))
    yield from (ContainerCreated(key, runtime_id), ContainerStarted(runtime_id), ContainerExited(runtime_id))


@settings(max_examples=300)
@given(st.lists(st.integers(0, 4), min_size=8, max_size=30))
def test_no_cpu_has_two_users_at_any_moment(order: list[int]) -> None:
    """However late updates are sent: if starts wait for their blockers, running owners are alone.

    In *order*, 0 to 3 are the next step of that container, and 4 lets the oldest update reach its container, with
    what is wanted by then.
    """
    node = Node(machine(cores=4, threads=1))
    lives = [list(steps_of(number)) for number in range(4)]
    unsent: list[str] = []
    for number in order:
        event: Event
        if number == 4:
            key = unsent.pop(0) if unsent else ""
            if key not in node.grants:
                continue
            event = UpdateApplied(key, node.grants[key].cpus, node.grants[key].mems)
        else:
            if not lives[number] or (isinstance(lives[number][0], ContainerStarted) and blockers(node, f"id{number}")):
                continue
            event = lives[number].pop(0)
        decision = step(node, event, POLICY)
        node = decision.node
        unsent += [update.key for update in decision.updates]
        assert_alone(node)


def assert_alone(node: Node) -> None:
    """No running container's CPUs, as applied, are owned by another running container and applied to it."""
    running = {k: a.cpus for k, a in node.applied.items() if node.containers[k].state is ContainerState.RUNNING}
    for key, cpus in running.items():
        own = node.grants[key].exclusive & cpus
        assert all(own.isdisjoint(others) for other, others in running.items() if other != key)
