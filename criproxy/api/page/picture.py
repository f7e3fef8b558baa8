"""One look at the node as the page shows it, as encoded pieces, and the pieces that differ between two looks.

A page gets everything once and then only what has changed, so that a change on a node with 500 containers costs as much
as the containers that it concerns.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_EVENTS = 200
"""So many events a page begins with."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The node at one moment; all values are encoded JSON."""

    parts: Mapping[str, bytes] = field(default_factory=dict)
    """What is shown, by name: ``status`` (without containers), ``machine``, ``devices`` and so on."""
    rows: Mapping[str, bytes] = field(default_factory=dict)
    """The containers by instance, in the order of `criproxy status`."""
    events: Sequence[bytes] = ()
    """The newest, the oldest first."""
    new_events: Sequence[bytes] = ()
    """Those of *events* that the picture before did not have."""


def picture(
    parts: Mapping[str, Any], rows: Mapping[str, Any], before: Picture | None, new_events: Iterable[Any]
) -> Picture:
    """Encode a look at the node; takes milliseconds on a large node."""
    fresh = [_encoded(event) for event in new_events][-MAX_EVENTS:]
    return Picture(
        {name: _encoded(part) for name, part in parts.items()},
        {life: _encoded(row) for life, row in rows.items()},
        [*(before.events if before else ()), *fresh][-MAX_EVENTS:],
        fresh,
    )


def whole(now: Picture) -> bytes:
    """Everything, as a message of the stream."""
    return _message(now.parts, now.rows, (), now.events, whole=True)


def changes(before: Picture, now: Picture) -> bytes:
    """What a page that shows *before* needs to show *now*, as a message of the stream."""
    parts = {name: part for name, part in now.parts.items() if before.parts.get(name) != part}
    rows = {life: row for life, row in now.rows.items() if before.rows.get(life) != row}
    gone = [life for life in before.rows if life not in now.rows]
    return _message(parts, rows, gone, now.new_events, whole=False)


def _message(
    parts: Mapping[str, bytes], rows: Mapping[str, bytes], gone: Sequence[str], events: Sequence[bytes], *, whole: bool
) -> bytes:
    fields = {
        "whole": _encoded(whole),
        "parts": _object(parts),
        "rows": _object(rows),
        "gone": _encoded(gone),
        "events": b"[%b]" % b",".join(events),
    }
    return b"event: node\ndata: %b\n\n" % _object(fields)


def _object(values: Mapping[str, bytes]) -> bytes:
    def items() -> Iterator[bytes]:
        for name, value in values.items():
            yield b"%b:%b" % (_encoded(name), value)

    return b"{%b}" % b",".join(items())


def _encoded(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """One line: JSON has no line breaks in texts, so that none can end a message of the stream."""
    return json.dumps(value, separators=(",", ":")).encode()
