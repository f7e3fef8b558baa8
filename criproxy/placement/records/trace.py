"""The format of traces: the events of a node as lines that can be stored and replayed.

The first line is the `Header` with the machine and the origin of the trace. Each other line is an event with its time;
it has no secrets, since events contain only what placement depends on. docs/simulate.md describes the lines.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import get_args

from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.placement import events

VERSION = 1
MARK = "criproxy_trace"
KINDS: dict[str, type[events.Event]] = {
    kind.__name__: kind
    for kind in (*get_args(events.WorkloadEvent), events.TopologyChanged)
    if kind is not events.UpdateApplied
}
"""The events that a trace may have, by name: requests and changes, but not their results or commands of operators."""


@dataclass(frozen=True, slots=True)
class Header:
    """The origin of a trace."""

    topology: Topology
    policy: str = ""
    """The name of the policy in force."""
    started: str = ""
    """When it was recorded, as an ISO time."""
    version: str = ""
    """The version of the criproxy that recorded it."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One event."""

    at_s: float
    """Since the beginning of the trace."""
    event: events.Event
    refused: str = ""
    """The message with which the policy refused it; empty if it did not."""


def header_line(header: Header) -> str:
    """Return the first line, without a newline."""
    return json.dumps({MARK: VERSION, **to_plain(header)})


def is_header(beginning: bytes) -> bool:
    """Whether a file with this *beginning* is a trace, of any version."""
    return beginning.startswith(b'{"%b":' % MARK.encode())


def line(traced: Traced) -> str:
    """Return the line of an event, without a newline."""
    values = {"at": round(traced.at_s, 3), "event": type(traced.event).__name__, **to_plain(traced.event)}
    return json.dumps(values | ({"refused": traced.refused} if traced.refused else {}))


def parse_header(text: str) -> Header:
    """Parse the output of `header_line`; raise ValueError with the mistake."""
    values = _values(text)
    if values.get(MARK) != VERSION:
        raise ValueError(f"this is not a trace of version {VERSION}: {MARK!r} is {values.get(MARK)!r:.40}")
    return from_plain(Header, values)


def parse_line(text: str) -> Traced:
    """Parse the output of `line`; raise ValueError with the mistake."""
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


def asked(event: events.Event) -> Iterator[events.Event]:
    """Yield the events of a trace that correspond to *event*; adopted containers appear as created and started."""
    if isinstance(event, events.Found):
        yield from _came(event.pods, (present.container for present in event.containers))
    elif type(event).__name__ in KINDS:
        yield event


def population(node: Node) -> Iterator[events.Event]:
    """Yield the events that lead to the pods and containers on *node*, in their order."""
    return _came(node.pods.values(), node.containers.values())


def _came(pods: Iterable[Pod], containers: Iterable[Container]) -> Iterator[events.Event]:
    yield from map(events.PodCreated, pods)
    for each in containers:
        key, reservation, state = each.key, each.reservation or f"found-{each.key}", each.state
        yield events.ContainerCreating(replace(each, key=reservation, state=ContainerState.CREATING, reservation=""))
        if state is not ContainerState.CREATING:
            yield events.ContainerCreated(reservation, key)
        if state not in (ContainerState.CREATING, ContainerState.CREATED):
            yield events.ContainerStarted(key)
        if state is ContainerState.EXITED:
            yield events.ContainerExited(key)
