"""What a node was asked, as lines that can be kept and asked again: the format of traces.

The first line is the `Header`: whose trace it is, and the machine. Each other line is an event with its time; it has
no secrets, since events carry only what placement depends on. docs/simulate.md describes the lines.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerStarted,
    Event,
    Found,
    PodCreated,
    TopologyChanged,
    UpdateApplied,
    WorkloadEvent,
)
from criproxy.model.node import Node
from criproxy.model.plain import from_plain, to_plain
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, ContainerState

VERSION = 1
MARK = "criproxy_trace"
KINDS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (*get_args(WorkloadEvent), TopologyChanged) if kind is not UpdateApplied
}
"""The events that a trace may have, by name: what was asked, not what came of it or what a person did."""


@dataclass(frozen=True, slots=True)
class Header:
    """Whose trace it is."""

    topology: Topology
    policy: str = ""
    """The name of the one that placed."""
    started: str = ""
    """When, as an ISO time."""
    version: str = ""
    """Of the criproxy that recorded it."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One event."""

    at_s: float
    """Since the beginning."""
    event: Event
    refused: str = ""
    """The sentence with which the policy refused it; empty where it did not."""


def header_line(header: Header) -> str:
    """The first line, without its end."""
    return json.dumps({MARK: VERSION, **to_plain(header)})


def is_header(beginning: bytes) -> bool:
    """Whether a file with this *beginning* is a trace, of whatever version."""
    return beginning.startswith(b'{"%b":' % MARK.encode())


def line(traced: Traced) -> str:
    """Another line, without its end."""
    values = {"at": round(traced.at_s, 3), "event": type(traced.event).__name__, **to_plain(traced.event)}
    return json.dumps(values | ({"refused": traced.refused} if traced.refused else {}))


def parse_header(text: str) -> Header:
    """What `header_line` has written; raises ValueError with what is wrong."""
    values = _values(text)
    if values.get(MARK) != VERSION:
        raise ValueError(f"this is not a trace of version {VERSION}: {MARK!r} is {values.get(MARK)!r:.40}")
    return from_plain(Header, values)


def parse_line(text: str) -> Traced:
    """What `line` has written; raises ValueError with what is wrong."""
    values = _values(text)
    kind = KINDS.get(str(values.get("event")))
    if kind is None:
        raise ValueError(f"there is no event {values.get('event')!r:.60}; events are: {', '.join(KINDS)}")
    at_s, refused = values.get("at"), values.get("refused", "")
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not isinstance(refused, str):
        raise ValueError("'at' must be seconds since the beginning, and 'refused' a sentence")  # noqa: TRY004 (data)
    return Traced(float(at_s), from_plain(kind, values), refused)


def _values(text: str) -> dict[str, object]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the line is not JSON (from column {error.colno} on)") from None
    except ValueError:  # a number of thousands of digits
        raise ValueError("the line is not JSON: a number in it has too many digits") from None
    if not isinstance(values, dict):
        raise ValueError("the line must be an object")  # noqa: TRY004 (it is data)
    return values


def asked(event: Event) -> Iterator[Event]:
    """The events of a trace that say the same as *event*; those who were found came in the usual way once."""
    if isinstance(event, Found):
        yield from map(PodCreated, event.pods)
        for present in event.containers:
            yield from _came(present.container)
    elif type(event).__name__ in KINDS:
        yield event


def population(node: Node) -> Iterator[Event]:
    """How those who are on *node* came, in their order."""
    yield from map(PodCreated, node.pods.values())
    for container in node.containers.values():
        yield from _came(container)


def _came(container: Container) -> Iterator[Event]:
    key = container.key
    reservation = container.reservation or f"found-{key}"
    yield ContainerCreating(replace(container, key=reservation, state=ContainerState.CREATING, reservation=""))
    if container.state is ContainerState.CREATING:
        return
    yield ContainerCreated(reservation, key)
    if container.state is not ContainerState.CREATED:
        yield ContainerStarted(key)
    if container.state is ContainerState.EXITED:
        yield ContainerExited(key)
