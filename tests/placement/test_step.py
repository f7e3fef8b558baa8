"""One event after the other: what each does to a node."""

from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.decision import Decision, Update
from criproxy.placement.engine import placing, step
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

POLICY = policy_of("static", {"reservedCpus": "0"})
EMPTY = Node(machine(cores=8, threads=1))


def owner(key: str = "r-own", cpus: int = 2, name: str = "own", attempt: int = 0) -> Container:
    """A container that owns CPUs."""
    return Container(key=key, pod="s", name=name, attempt=attempt, qos=QosClass.GUARANTEED, cpu_milli=cpus * 1000)


def sharer(key: str = "r-share", name: str = "share") -> Container:
    """A container that shares."""
    return Container(key=key, pod="s", name=name, qos=QosClass.BURSTABLE, cpu_milli=250)


def run(node: Node, *events: ev.Event) -> Decision:
    """The decision about the last of *events*."""
    decision = Decision(node)
    for event in events:
        decision = step(decision.node, event, POLICY)
    return decision


def running(container: Container, id: str) -> tuple[ev.Event, ...]:
    """What happens until *container* runs with the runtime's *id*."""
    return ev.ContainerCreating(container), ev.ContainerCreated(container.key, id), ev.ContainerStarted(id)


def test_a_life() -> None:
    """Reserved, created, started, exited, removed: the place is taken at once and free at the exit."""
    decision = run(EMPTY, ev.ContainerCreating(owner()))
    assert decision.key == "r-own"
    assert decision.grant is not None
    assert format_cpuset(decision.grant.exclusive) == "1-2"
    assert decision.node.containers["r-own"].state is ContainerState.CREATING
    assert decision.node.applied["r-own"] == Applied(decision.grant.cpus, decision.grant.mems)

    decision = run(decision.node, ev.ContainerCreated("r-own", "id1"))
    assert list(decision.node.containers) == list(decision.node.grants) == list(decision.node.applied) == ["id1"]
    assert decision.node.containers["id1"].reservation == "r-own"
    assert decision.node.containers["id1"].state is ContainerState.CREATED

    decision = run(decision.node, ev.ContainerStarted("id1"))
    assert decision.node.containers["id1"].state is ContainerState.RUNNING

    decision = run(decision.node, ev.ContainerExited("id1"))
    assert decision.node.containers["id1"].state is ContainerState.EXITED
    assert decision.node.grants == {}
    assert decision.node.applied == {}

    assert run(decision.node, ev.ContainerGone("id1")).node == EMPTY


def test_a_create_in_flight_is_updated_when_it_has_an_id() -> None:
    """What changed while the runtime made a container is told to it as soon as it exists."""
    decision = run(EMPTY, ev.ContainerCreating(sharer()), ev.ContainerCreating(owner()))
    assert decision.updates == ()

    decision = run(decision.node, ev.ContainerCreated("r-share", "id1"))
    assert decision.updates == (Update("id1", decision.node.grants["id1"]),)
    assert format_cpuset(decision.updates[0].grant.cpus) == "0,3-7"
    assert format_cpuset(decision.node.applied["id1"].cpus) == "0-7"


def test_what_a_repeated_create_says_is_what_the_container_may_have() -> None:
    """An owner left before the retry and another came after it, with the same CPUs: the container has to leave them."""
    node = run(EMPTY, *running(owner(), "id1"), ev.ContainerCreating(sharer()), ev.ContainerGone("id1")).node
    node = run(node, ev.ContainerCreating(sharer("r-again")), ev.ContainerCreating(owner("r-next", name="next"))).node
    assert format_cpuset(node.grants["r-share"].cpus) == "0,3-7"
    assert format_cpuset(node.applied["r-share"].cpus) == "0-7", "its message was made while nobody owned any"

    decision = run(node, ev.ContainerCreated("r-share", "id2"))

    assert decision.updates == (Update("id2", node.grants["r-share"]),)


@pytest.mark.parametrize("outcome", [(), (ev.UnknownOutcome("r-own"),)])
def test_a_repeated_create_with_another_size_gets_a_place_for_that(outcome: tuple[ev.Event, ...]) -> None:
    """The pod was resized after a create of which nothing may have come; what the first one said counts, too."""
    node = run(EMPTY, ev.ContainerCreating(owner(cpus=1)), *outcome).node

    decision = run(node, ev.ContainerCreating(owner("r-again", cpus=2)))

    assert decision.key == "r-own"
    assert decision.node.containers["r-own"].cpu_milli == 2000
    assert format_cpuset(decision.node.grants["r-own"].exclusive) == "1-2"
    assert decision.node.applied["r-own"].cpus == {1, 2}

    smaller = run(decision.node, ev.ContainerCreating(owner("r-third", cpus=1)))

    assert format_cpuset(smaller.node.owned_cpus) == "1"
    assert smaller.node.applied["r-own"].cpus == {1, 2}, "the container may be the one of the second create"


def test_a_repeated_create_with_another_size_without_room_is_refused() -> None:
    """The first one keeps its place."""
    node = run(EMPTY, ev.ContainerCreating(owner()), ev.UnknownOutcome("r-own")).node
    with pytest.raises(NotEnough):
        step(node, ev.ContainerCreating(owner("r-again", cpus=8)), POLICY)


def test_a_repeated_create_of_what_is_there_changes_no_size() -> None:
    """The runtime has the container with its size, and refuses the repetition."""
    node = run(EMPTY, ev.ContainerCreating(owner()), ev.ContainerCreated("r-own", "id1")).node
    assert run(node, ev.ContainerCreating(owner("r-again", cpus=3))).node is node


@pytest.mark.parametrize(
    "earlier",
    [
        pytest.param((), id="in-flight"),
        pytest.param((ev.UnknownOutcome("r-own"),), id="unknown-outcome"),
        pytest.param((ev.ContainerCreated("r-own", "id1"),), id="created-but-the-reply-was-lost"),
    ],
)
def test_a_retry_inherits_the_place(earlier: tuple[ev.Event, ...]) -> None:
    """A create of the same sandbox, name and attempt gets the same place, and its failure frees nothing."""
    before = run(EMPTY, ev.ContainerCreating(owner(cpus=7)), *earlier).node

    decision = step(before, ev.ContainerCreating(owner("r-again", cpus=7)), POLICY)

    assert decision.node is before
    assert decision.key == next(iter(before.containers))
    assert decision.grant == next(iter(before.grants.values()))
    assert run(before, ev.ContainerGone("r-again")).node == before


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ev.ContainerCreated("x", "y"), id="created"),
        pytest.param(ev.ContainerStarted("x"), id="started"),
        pytest.param(ev.ContainerExited("x"), id="exited"),
        pytest.param(ev.ContainerGone("x"), id="gone"),
        pytest.param(ev.UnknownOutcome("x"), id="unknown"),
        pytest.param(ev.PodStopped("x"), id="pod-stopped"),
        pytest.param(ev.PodGone("x"), id="pod-gone"),
    ],
)
def test_events_about_strangers_change_nothing(event: ev.Event) -> None:
    """An event about something unknown is no error and changes nothing."""
    node = run(EMPTY, *running(owner(), "id1"), *running(sharer(), "id2")).node
    decision = step(node, event, POLICY)

    assert decision.node == node
    assert decision.updates == ()


def test_what_a_policy_was_given_can_be_had_again() -> None:
    """For who comes, after what gave way to it, and for who is resized; nothing where nobody is placed."""
    before = run(EMPTY, ev.ContainerCreating(owner()), ev.ContainerCreated("r-own", "id1")).node
    again = placing(before, ev.ContainerCreating(owner("r-2", attempt=1)), POLICY)
    resized = placing(before, ev.ContainerResized("id1", Sizes(cpu_milli=3000)), POLICY)

    assert again
    assert (again[0].grants, again[0].containers["r-2"]) == ({}, again[1])
    assert (again[1].reservation, again[1].state) == ("r-2", ContainerState.CREATING)
    assert resized
    assert (resized[1].cpu_milli, resized[0].grants) == (3000, before.grants)
    assert placing(before, ev.ContainerResized("nobody", Sizes()), POLICY) is None
    assert placing(before, ev.ContainerCreating(owner()), POLICY) is None
    assert placing(before, ev.ContainerStarted("id1"), POLICY) is None


def test_who_must_not_be_updated_is_only_watched_once_it_runs() -> None:
    """One that shares would have to make room: nobody owns CPUs where it is, and nobody gets an update for it."""
    decision = run(EMPTY, *running(replace(sharer(), stays=True), "share"))

    assert not decision.node.grants
    assert decision.node.applied["share"].cpus == decision.node.watched_cpus == EMPTY.topology.cpus
    with pytest.raises(NotEnough, match="containers that criproxy does not move run on CPUs 0-7"):
        run(decision.node, ev.ContainerCreating(owner()))
    assert not run(decision.node, ev.ContainerExited("share")).node.watched_cpus
