"""A splice, and all that has come of it: in a form in which two of them can be compared."""

from typing import NamedTuple

from criproxy.wire import frames
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Ended, Event, Held, Replied, Unreadable
from criproxy.wire.stats import Stats
from lab.fuzz.calls import TABLE


class Result(NamedTuple):
    """What came of a script."""

    to_client: list[tuple[object, ...]]
    to_runtime: list[tuple[object, ...]]
    events: list[tuple[object, ...]]


class Tap:
    """Keeps what a splice writes and tells."""

    def __init__(self) -> None:
        self.splice = Splice(1, Stats(TABLE))
        self.to_client, self.to_runtime = bytearray(), bytearray()
        self.events: list[Event] = []

    def feed(self, side: int, data: bytes) -> None:
        """Bytes from the client (1) or the runtime (0)."""
        (self.splice.from_client if side else self.splice.from_runtime)(data)

    def collect(self) -> tuple[bytes, bytes, list[Event]]:
        """Take what it has written to the client and to the runtime since the last time, and what it tells."""
        new = self.splice.take_for_client(), self.splice.take_for_runtime(), self.splice.take_events()
        self.to_client += new[0]
        self.to_runtime += new[1]
        self.events += new[2]
        return new

    @property
    def result(self) -> Result:
        """All so far."""
        to_runtime = bytes(self.to_runtime).removeprefix(frames.PREFACE)
        events = [_event_value(event) for event in self.events]
        return Result(_canonical(bytes(self.to_client)), _canonical(to_runtime), events)


def _canonical(written: bytes) -> list[tuple[object, ...]]:
    """Frames in order, as far as the order means something.

    DATA is joined per stream between other frames of the stream, increments are added up, and streams stand one
    after the other; the order of header blocks, which HPACK needs, comes first.
    """
    streams: dict[int, list[list[object]]] = {}
    increments: dict[int, int] = {}
    blocks: list[tuple[object, ...]] = []
    at = 0
    while at < len(written):
        end = at + 9 + int.from_bytes(written[at : at + 3], "big")
        kind, flags, stream = written[at + 3], written[at + 4], int.from_bytes(written[at + 5 : at + 9], "big")
        payload, at = written[at + 9 : end], end
        entries = streams.setdefault(stream, [])
        if kind == frames.WINDOW_UPDATE:
            increments[stream] = increments.get(stream, 0) + int.from_bytes(payload, "big")
            continue
        if kind in (frames.HEADERS, frames.CONTINUATION):
            blocks.append((stream, kind, payload))
        if kind == frames.DATA and entries and entries[-1][0] == frames.DATA:
            entries[-1][1] = int(str(entries[-1][1])) | flags & frames.END_STREAM
            entries[-1][2] = bytes(entries[-1][2]) + _body(flags, payload)  # type: ignore[call-overload]
        elif kind == frames.DATA:
            entries.append([kind, flags & frames.END_STREAM, _body(flags, payload)])
        else:
            entries.append([kind, flags, payload])
    ordered = [(stream, *entry) for stream, entries in sorted(streams.items()) for entry in entries]
    return [*blocks, *ordered, *(("window", *item) for item in sorted(increments.items()))]


def _body(flags: int, payload: bytes) -> bytes:
    """DATA without its padding; all of it, where the padding is wrong (no splice looks at what just passes)."""
    wrong = flags & frames.PADDED and (not payload or payload[0] >= len(payload))
    return payload if wrong else frames.unpad(flags, payload)


def _event_value(event: Event) -> tuple[object, ...]:
    """An event as a value."""
    call = event.call
    who = (type(event).__name__, call.stream, call.method)
    match event:
        case Held(_, body) | Replied(_, body):
            return (*who, body)
        case Ended(_, outcome):
            return (*who, outcome, call.request)
        case Unreadable(_, error):
            return (*who, str(error))
        case Cancelled():
            return who
