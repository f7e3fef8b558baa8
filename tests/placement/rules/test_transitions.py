"""The state of a container changes as the table says, for every event in every state."""

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest

from criproxy.errors import Refused
from criproxy.model.attributes import granted
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.incident import Incident
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.rules.transitions import LATER_ATTEMPT, TRANSITIONS, Effect, Row
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

POLICY, MACHINE = policy_of("static"), machine(cores=8, threads=1)
OWN = Grant(parse_cpuset("1-2"), frozenset({0}), parse_cpuset("1-2"))
POD = Pod(key="s", name="web", uid="u", qos=QosClass.GUARANTEED)
SIZES = Sizes(cpu_milli=3000)
EVENTS: dict[type[ev.Event], ev.Event] = {
    type(event): event
    for event in (
        ev.PodCreated(POD),
        ev.PodResized("s", 4000),
        ev.PodStopped("s"),
        ev.PodNotReady("s"),
        ev.PodGone("s"),
        ev.ContainerCreated("c", "id"),
        ev.ContainerStarted("c"),
        ev.ColdStartEnded("c"),
        ev.ContainerExited("c"),
        ev.ContainerGone("c"),
        ev.UnknownOutcome("c"),
        ev.UpdateApplied("c", Applied(parse_cpuset("5"), frozenset({0}))),
        ev.ContainerResized("c", SIZES),
        ev.ResizeRefused("c", SIZES),
        ev.Promoted("c"),
        ev.CardReported("k", Incident(device_class="nvidia", card="GPU-a", since_s=1.0)),
        ev.PolicyChanged(),
        ev.Released("by hand"),
        ev.TopologyChanged(machine(cores=7, threads=1)),
        ev.Unclassified(kubelet_files={"c": ()}),
        ev.PlacesMissed(("c",), 1.0),
    )
}


def container(state: ContainerState) -> Container:
    """One of ours in this state; it has an id of the runtime as soon as there can be one."""
    sizes = Sizes(cpu_milli=2000)
    made = Container(key="c", pod="s", name="main", pod_name="web", qos=QosClass.GUARANTEED, state=state)
    return replace(made.resized(sizes), reservation="c" if state is ContainerState.CREATING else "r-1")


def node_with(each: Container) -> Node:
    """A node that has it, with a place unless it has exited."""
    node = Node(MACHINE, pods={"s": POD}, containers={"c": each})
    alive = each.state is not ContainerState.EXITED
    return node.replace(grants={"c": OWN}, applied={"c": granted(OWN)}) if alive else node


def event_of(kind: type[ev.Event], each: Container) -> ev.Event:
    """An event of this kind about a container."""
    if kind is ev.ContainerCreating:
        return ev.ContainerCreating(replace(each, key="r-2", reservation="r-2", state=ContainerState.CREATING))
    return ev.Found(containers=(ev.Present(each, granted(OWN)),)) if kind is ev.Found else EVENTS[kind]


def cells() -> Iterator[object]:
    """Every event in every state."""
    for kind, row in TRANSITIONS.items():
        for state in ContainerState:
            yield pytest.param(kind, state, row, id=f"{kind.__name__}-{state.value}")


def test_every_event_has_an_entry_for_every_state() -> None:
    """None is decided elsewhere."""
    assert TRANSITIONS.keys() == {kind for part in get_args(ev.Event) for kind in (get_args(part) or (part,))}
    assert all(row.keys() == set(ContainerState) for row in (*TRANSITIONS.values(), LATER_ATTEMPT))


def test_a_container_that_exited_never_lives_again() -> None:
    """By no event."""
    ended = {row[ContainerState.EXITED] for row in (*TRANSITIONS.values(), LATER_ATTEMPT)}

    assert ended <= {Effect.IGNORED, Effect.FORGOTTEN, Effect.STAYS}


@pytest.mark.parametrize(("kind", "state", "row"), list(cells()))
def test_a_step_does_what_the_table_says(kind: type[ev.Event], state: ContainerState, row: Row) -> None:
    """The container is in that state afterwards, as it was, or gone; and the node is as it should be."""
    before = node_with(container(state))
    try:
        after = step(before, event_of(kind, container(state)), POLICY).node
    except Refused:
        after = before
    found = after.containers.get("c") or after.containers.get("id")

    match row[state]:
        case Effect.FORGOTTEN:
            assert found is None
        case Effect.IGNORED:
            assert found == before.containers["c"]
            assert ("c" in after.grants, after.applied.get("c")) == (False, None)
        case Effect.STAYS:
            assert found
            assert found.state is state
        case expected:
            assert found
            assert found.state is expected
    assert ("c" in after.grants or "id" in after.grants) is (
        found is not None and found.state is not ContainerState.EXITED
    )
    assert violations(after) == []


@pytest.mark.parametrize("state", ContainerState)
def test_a_later_attempt_ends_one_that_never_ran(state: ContainerState) -> None:
    """The table has a row for that, since the event is about another container."""
    before = node_with(container(state))
    later = replace(container(ContainerState.CREATING), key="r-2", reservation="r-2", attempt=1)
    after = step(before, ev.ContainerCreating(later), POLICY).node

    expected = LATER_ATTEMPT[state]
    assert after.containers["c"].state is (state if expected is Effect.IGNORED else expected)


def test_an_update_that_is_confirmed_after_the_exit_bars_no_cpu() -> None:
    """An adopted container that somebody else started: its CPUs are free for others from its exit on."""
    foreign = replace(container(ContainerState.RUNNING), reservation="")
    node = step(node_with(foreign), ev.ContainerExited("c"), POLICY).node

    late = step(node, ev.UpdateApplied("c", Applied(OWN.cpus, OWN.mems)), POLICY).node

    assert late.watched_cpus == frozenset()
    assert late == node
