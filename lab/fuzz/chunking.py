"""Plays a script again with the same order of frames, but other cuts, and compares what came of it."""

from random import Random
from typing import NamedTuple

from criproxy.wire import frames
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Ended, Event, Held, Replied, Unreadable
from criproxy.wire.stats import Stats
from lab.fuzz.calls import TABLE
from lab.fuzz.conversation import Answered, Conversation, Drained, Fed, Step
from lab.fuzz.peer import require

MAX_PIECES = 150
"""About as many pieces at most are made of one script: small scripts may be cut into single bytes."""


class Result(NamedTuple):
    """What one way of cutting came to."""

    to_client: list[tuple[object, ...]]
    to_runtime: list[tuple[object, ...]]
    events: list[tuple[object, ...]]


def compare(talk: Conversation, seed: int) -> None:
    """Complain if other cuts of the same bytes have another result."""
    steps = talk.steps
    expected = Result(
        canonical(bytes(talk.written[0])),
        canonical(bytes(talk.written[1]).removeprefix(frames.PREFACE)),
        [event_value(event) for event in talk.events],
    )
    size = sum(len(step.unit) for step in steps if isinstance(step, Fed))
    ways = [1 << 30, max(1 << seed % 14, size // MAX_PIECES)]
    for longest in ways:
        result = _play(steps, Random(seed), longest)
        for name, one, other in zip(Result._fields, expected, result, strict=True):
            require(one == other, f"{name} depends on chunking (at most {longest} bytes):", _difference(one, other))


def _difference(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> str:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"entry {at}: {a!r:.300} became {b!r:.300}"
    return f"{len(one)} entries became {len(other)}"


def _play(steps: list[Step], random: Random, longest: int) -> Result:
    """Feed *steps*, joined where one direction has several in a row, and cut at random."""
    splice = Splice(1, Stats(TABLE))
    player = _Player(splice, random, longest, steps)
    for group in _groups(steps):
        player.do(group)
    splice.lost()
    player.collect()
    written = bytes(player.to_runtime).removeprefix(frames.PREFACE)
    events = [event_value(event) for event in player.events]
    return Result(canonical(bytes(player.to_client)), canonical(written), events)


def _groups(steps: list[Step]) -> list[list[Step]]:
    """Runs of units of the same direction; everything else alone."""
    groups: list[list[Step]] = []
    last: bool | None = None
    for step in steps:
        side = step.from_client if isinstance(step, Fed) else None
        if side is None or side != last:
            groups.append([])
        groups[-1].append(step)
        last = side
    return groups


class _Player:
    """Feeds the bytes of each direction at most so far that no unit is whole before its turn."""

    def __init__(self, splice: Splice, random: Random, longest: int, steps: list[Step]) -> None:
        self.splice = splice
        self.random = random
        self.longest = longest
        self.to_client, self.to_runtime = bytearray(), bytearray()
        self.events: list[Event] = []
        self.coming = [[s.unit for s in steps if isinstance(s, Fed) and s.from_client == side] for side in (0, 1)]
        self.at = [0, 0]
        self.ahead = [0, 0]

    def do(self, group: list[Step]) -> None:
        match group[0]:
            case Fed(from_client, _):
                self._feed(int(from_client), len(group))
            case Answered(stream, verdict):
                held = next(e for e in self.events if isinstance(e, Held) and e.call.stream == stream)
                require(self.splice.answer(held.call, held.body, verdict), "another chunking, and no call to answer")
            case Drained():
                self.splice.go_away()
        self.collect()

    def _feed(self, side: int, count: int) -> None:
        units = self.coming[side][self.at[side] : self.at[side] + count]
        self.at[side] += count
        data = b"".join(units)[self.ahead[side] :]
        following = self.coming[side][self.at[side] : self.at[side] + 1]
        self.ahead[side] = self.random.randrange(len(following[0])) if following else 0
        data += b"".join(following)[: self.ahead[side]]
        feed = self.splice.from_client if side else self.splice.from_runtime
        while data:
            size = self.random.randint(1, self.longest) if self.longest < len(data) else len(data)
            feed(data[:size])
            data = data[size:]
            if self.random.random() < 0.3:
                self.collect()

    def collect(self) -> None:
        self.to_client += self.splice.take_for_client()
        self.to_runtime += self.splice.take_for_runtime()
        self.events += self.splice.take_events()


def canonical(written: bytes) -> list[tuple[object, ...]]:
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
            entries[-1][2] = bytes(entries[-1][2]) + body(flags, payload)  # type: ignore[call-overload]
        elif kind == frames.DATA:
            entries.append([kind, flags & frames.END_STREAM, body(flags, payload)])
        else:
            entries.append([kind, flags, payload])
    ordered = [(stream, *entry) for stream, entries in sorted(streams.items()) for entry in entries]
    return [*blocks, *ordered, *(("window", *item) for item in sorted(increments.items()))]


def body(flags: int, payload: bytes) -> bytes:
    """DATA without its padding; all of it, where the padding is wrong (no splice looks at what just passes)."""
    wrong = flags & frames.PADDED and (not payload or payload[0] >= len(payload))
    return payload if wrong else frames.unpad(flags, payload)


def event_value(event: Event) -> tuple[object, ...]:
    """An event as a value."""
    call = event.call
    who = (type(event).__name__, call.stream, call.method)
    match event:
        case Held(_, body):
            return (*who, body)
        case Replied(_, message):
            return (*who, message)
        case Ended(_, outcome):
            return (*who, outcome, call.request)
        case Unreadable(_, error):
            return (*who, str(error))
        case Cancelled():
            return who
