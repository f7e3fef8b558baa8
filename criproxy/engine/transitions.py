"""How events change the state of a container: one table, which docs/internals.md prints."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from criproxy.engine.events import (
    CardReported,
    ColdStartEnded,
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    Found,
    PodCreated,
    PodGone,
    PodNotReady,
    PodResized,
    PodStopped,
    PolicyChanged,
    Promoted,
    Released,
    ResizeRefused,
    TopologyChanged,
    UnknownOutcome,
    UpdateApplied,
)
from criproxy.model.entries import with_entries, without
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState


class Effect(Enum):
    """What an event does to a container that it brings into no other state."""

    STAYS = "stays"
    """The event counts: the container may get another place, size or key."""
    IGNORED = "ignored"
    """Nothing about the container changes."""
    FORGOTTEN = "forgotten"
    """The container is taken out of the node."""


Row = Mapping[ContainerState, ContainerState | Effect]
"""What an event does to a container, by the state in which the container is."""

CREATING, CREATED, RUNNING = ContainerState.CREATING, ContainerState.CREATED, ContainerState.RUNNING
UNKNOWN, EXITED = ContainerState.UNKNOWN, ContainerState.EXITED
STAYS, IGNORED, FORGOTTEN = Effect.STAYS, Effect.IGNORED, Effect.FORGOTTEN


def _row(*cells: ContainerState | Effect) -> Row:
    return dict(zip((CREATING, CREATED, RUNNING, UNKNOWN, EXITED), cells, strict=True))


_WHILE_IT_LIVES = _row(STAYS, STAYS, STAYS, STAYS, IGNORED)

TRANSITIONS: Mapping[type[Event], Row] = {
    # From left to right, a container that is: creating, created, running, unknown, exited.
    ContainerCreating: _WHILE_IT_LIVES,  # the create of this container is repeated
    ContainerCreated: _row(CREATED, STAYS, STAYS, CREATED, STAYS),
    ContainerStarted: _row(RUNNING, RUNNING, STAYS, RUNNING, IGNORED),
    ContainerExited: _row(EXITED, EXITED, EXITED, EXITED, IGNORED),
    ContainerGone: _row(FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN),
    UnknownOutcome: _row(UNKNOWN, UNKNOWN, UNKNOWN, STAYS, IGNORED),
    # A create or a start that is in flight, or of unknown outcome, decides: until then the container keeps its place.
    PodStopped: _row(STAYS, EXITED, EXITED, STAYS, IGNORED),
    PodGone: _row(FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN),
    PodCreated: _WHILE_IT_LIVES,
    PodResized: _WHILE_IT_LIVES,
    PodNotReady: _WHILE_IT_LIVES,
    ColdStartEnded: _WHILE_IT_LIVES,
    ContainerResized: _WHILE_IT_LIVES,
    ResizeRefused: _WHILE_IT_LIVES,
    Promoted: _WHILE_IT_LIVES,
    UpdateApplied: _WHILE_IT_LIVES,
    PolicyChanged: _WHILE_IT_LIVES,
    Released: _WHILE_IT_LIVES,
    TopologyChanged: _WHILE_IT_LIVES,
    Found: _WHILE_IT_LIVES,
    CardReported: _WHILE_IT_LIVES,
}
"""What each event does to a container that it is about; a container that exited never runs again."""

LATER_ATTEMPT: Row = _row(IGNORED, EXITED, IGNORED, IGNORED, IGNORED)
"""What the create of a later attempt does to an earlier one, which the kubelet has given up if it never ran."""


def ignores(container: Container | None, event: type[Event]) -> bool:
    """Whether *event* changes nothing about *container*; None is a container that the node does not know."""
    return container is None or TRANSITIONS[event][container.state] is IGNORED


def state_after(container: Container, row: Row) -> ContainerState:
    """The state of a container that is not forgotten."""
    cell = row[container.state]
    return cell if isinstance(cell, ContainerState) else container.state


def advanced(node: Node, containers: Iterable[Container], row: Row) -> Node:
    """The node after *row* was applied to *containers* of it; nothing is applied any more to those that ended."""
    forgotten, changed = list[str](), dict[str, Container]()
    for each in containers:
        if row[each.state] is FORGOTTEN:
            forgotten.append(each.key)
        elif (state := state_after(each, row)) is not each.state:
            changed[each.key] = replace(each, state=state)
    ended = [*forgotten, *(key for key, each in changed.items() if each.state is EXITED)]
    if not forgotten and not changed:
        return node
    left = without(node.containers, forgotten) if forgotten else node.containers
    left = with_entries(left, changed) if changed else left
    former = without(node.former, ended) if ended and node.former else None
    return node.replace(containers=left, applied=without(node.applied, ended) if ended else None, former=former)
