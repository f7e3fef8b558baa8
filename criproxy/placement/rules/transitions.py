"""How events change the state of a container: one table, which docs/internals.md prints."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from criproxy.model.node import Node, with_changes, without
from criproxy.model.workload import Container, ContainerState
from criproxy.placement import events
from criproxy.placement.events import Event


class Effect(Enum):
    """The effect of an event on a container whose state does not change."""

    STAYS = "stays"
    """The event applies: the container may get another place, size or key."""
    IGNORED = "ignored"
    """The container does not change."""
    FORGOTTEN = "forgotten"
    """The container is removed from the node."""


Row = Mapping[ContainerState, ContainerState | Effect]
"""The effect of an event on a container, by its state."""

CREATING, CREATED, RUNNING = ContainerState.CREATING, ContainerState.CREATED, ContainerState.RUNNING
UNKNOWN, EXITED = ContainerState.UNKNOWN, ContainerState.EXITED
STAYS, IGNORED, FORGOTTEN = Effect.STAYS, Effect.IGNORED, Effect.FORGOTTEN


def _row(*cells: ContainerState | Effect) -> Row:
    return dict(zip((CREATING, CREATED, RUNNING, UNKNOWN, EXITED), cells, strict=True))


_WHILE_IT_LIVES = _row(STAYS, STAYS, STAYS, STAYS, IGNORED)

TRANSITIONS: Mapping[type[Event], Row] = {
    # From left to right, a container that is: creating, created, running, unknown, exited.
    events.ContainerCreating: _WHILE_IT_LIVES,  # the create of this container is repeated
    events.ContainerCreated: _row(CREATED, STAYS, STAYS, CREATED, STAYS),
    events.ContainerStarted: _row(RUNNING, RUNNING, STAYS, RUNNING, IGNORED),
    events.ContainerExited: _row(EXITED, EXITED, EXITED, EXITED, IGNORED),
    events.ContainerGone: _row(FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN),
    events.UnknownOutcome: _row(UNKNOWN, UNKNOWN, UNKNOWN, STAYS, IGNORED),
    # A create or start in flight, or of unknown outcome, decides about the container: until then it keeps its place.
    events.PodStopped: _row(STAYS, EXITED, EXITED, STAYS, IGNORED),
    events.PodGone: _row(FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN),
    events.PodCreated: _WHILE_IT_LIVES,
    events.PodResized: _WHILE_IT_LIVES,
    events.PodNotReady: _WHILE_IT_LIVES,
    events.ColdStartEnded: _WHILE_IT_LIVES,
    events.ContainerResized: _WHILE_IT_LIVES,
    events.ResizeRefused: _WHILE_IT_LIVES,
    events.Promoted: _WHILE_IT_LIVES,
    events.UpdateApplied: _WHILE_IT_LIVES,
    events.PolicyChanged: _WHILE_IT_LIVES,
    events.Released: _WHILE_IT_LIVES,
    events.TopologyChanged: _WHILE_IT_LIVES,
    events.Found: _WHILE_IT_LIVES,
    events.Unclassified: _WHILE_IT_LIVES,
    events.CardReported: _WHILE_IT_LIVES,
    events.PlacesMissed: _WHILE_IT_LIVES,
}
"""The effect of each event on its container; a container that has exited never runs again."""

LATER_ATTEMPT: Row = _row(IGNORED, EXITED, IGNORED, IGNORED, IGNORED)
"""The effect of the create of a later attempt on an earlier one, which the kubelet has given up if it never ran."""


def ignores(container: Container | None, event: type[Event]) -> bool:
    """Whether *event* does not change *container*; None is a container that the node does not have."""
    return container is None or TRANSITIONS[event][container.state] is IGNORED


def state_after(container: Container, row: Row) -> ContainerState:
    """Return the state of a container after *row*, which does not remove it."""
    cell = row[container.state]
    return cell if isinstance(cell, ContainerState) else container.state


def given_up(node: Node, containers: Iterable[Container]) -> Node:
    """Return the node after the create of a later attempt of each of *containers*."""
    return advanced(node, containers, LATER_ATTEMPT)


def has_given_way(node: Node, container: Container) -> bool:
    """Whether *container* never ran, and a later attempt has replaced it."""
    return state_after(container, LATER_ATTEMPT) is not container.state and has_later_attempt(node, container)


def has_later_attempt(node: Node, container: Container) -> bool:
    """Whether the pod has a container of the same name with a higher attempt, which may have ended."""
    beside = node.containers_of(container.pod)
    return any(each.name == container.name and each.attempt > container.attempt for each in beside)


def advanced(node: Node, containers: Iterable[Container], row: Row) -> Node:
    """Return the node after *row* was applied to *containers* of it, without the applied state of those that ended."""
    forgotten, changed = list[str](), dict[str, Container]()
    for each in containers:
        if row[each.state] is FORGOTTEN:
            forgotten.append(each.key)
        elif (state := state_after(each, row)) is not each.state:
            changed[each.key] = replace(each, state=state)
    if not forgotten and not changed:
        return node
    ended = [*forgotten, *[key for key, each in changed.items() if each.state is EXITED]]
    left = with_changes(node.containers, changed, forgotten)
    former = without(node.former, ended) if ended and node.former else None
    return node.replace(containers=left, applied=without(node.applied, ended) if ended else None, former=former)
