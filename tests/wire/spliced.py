"""A `Splice` in memory between two strict endpoints: four pipes, the handlers' answers, and what must hold at rest."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from criproxy.errors import StatusCode
from criproxy.wire.calls import Call, Outcome, Refuse, Rule, Verdict
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Ended, Event, Held, Replied
from criproxy.wire.stats import Stats
from tests.wire.rawpeer import Endpoint, Half, grpc

PASS, WATCH, HOLD, EDIT, EACH, HOLD_EDIT = "/t/Pass", "/t/Watch", "/t/Hold", "/t/Edit", "/t/Each", "/t/HoldEdit"
ANSWER = "/t/Answer"
VERSION = "/t/Version"
REFUSED = Refuse(StatusCode.RESOURCE_EXHAUSTED, "no room for this")
GROWN_BYTES = 3_000

Cut = Callable[[bytes], Iterable[bytes]]


async def _never(call: Call, message: bytes) -> Verdict:
    raise AssertionError("a splice calls no hold handler itself")


def _ignore(call: Call, what: object) -> None:
    """Make the method a watched one: what handlers are told is read from the events."""


def grown(message: bytes) -> bytes:
    """What the edit rules make of a reply message: it starts with a digit that says how."""
    match message[:1]:
        case b"0":
            return message
        case b"1":
            return message[: len(message) // 2]
        case _:
            return message + b"+" * GROWN_BYTES


def _edit(call: Call, message: bytes) -> bytes | None:
    return None if message[:1] == b"0" else grown(message)


TABLE = {
    WATCH: Rule(done=_ignore),
    HOLD: Rule(hold=_never, done=_ignore),
    EDIT: Rule(edit=_edit, done=_ignore),
    EACH: Rule(done=_ignore, each=_ignore),
    HOLD_EDIT: Rule(hold=_never, edit=_edit, done=_ignore),
    ANSWER: Rule(answer=REFUSED, done=_ignore),
}


def whole(data: bytes) -> list[bytes]:
    """No cut at all."""
    return [data] if data else []


@dataclass(frozen=True, slots=True)
class Told:
    """One event in a form that can be compared."""

    kind: str
    stream: int
    what: bytes | Outcome | None = None


def told(event: Event) -> Told:
    """The comparable form of *event*."""
    match event:
        case Held(call, body):
            return Told("held", call.stream, body)
        case Replied(call, message):
            return Told("replied", call.stream, message)
        case Ended(call, outcome):
            return Told("ended", call.stream, outcome)
        case _:
            return Told(type(event).__name__.lower(), event.call.stream)


class Spliced:
    """Both peers of one splice."""

    def __init__(
        self,
        *,
        client: Endpoint | None = None,
        runtime: Endpoint | None = None,
        cut: Cut = whole,
        table: dict[str, Rule] | None = None,
    ) -> None:
        self.client = client or Endpoint(client=True)
        self.runtime = runtime or Endpoint(client=False)
        self.stats = Stats(TABLE if table is None else table)
        self.splice = Splice(1, self.stats)
        self.cut = cut
        self.held: dict[int, Held] = {}
        self.told: list[Told] = []
        self._to_client = bytearray()
        self._to_runtime = bytearray()

    # -- pipes -----------------------------------------------------------------------------------------------------

    def client_writes(self) -> None:
        """What the client has sent reaches the splice."""
        for data in self.cut(self.client.take()):
            self.splice.from_client(data)
            self._collect()

    def runtime_writes(self) -> None:
        """What the runtime has sent reaches the splice."""
        for data in self.cut(self.runtime.take()):
            self.splice.from_runtime(data)
            self._collect()

    def client_reads(self) -> None:
        """What the splice has for the client reaches it."""
        data = bytes(self._to_client)
        self._to_client.clear()
        self.client.feed(data)

    def runtime_reads(self) -> None:
        """What the splice has for the runtime reaches it."""
        data = bytes(self._to_runtime)
        self._to_runtime.clear()
        self.runtime.feed(data)

    def _collect(self) -> None:
        self._to_client += self.splice.take_for_client()
        self._to_runtime += self.splice.take_for_runtime()
        for event in self.splice.take_events():
            self.told.append(told(event))
            if isinstance(event, Held):
                assert event.call.stream not in self.held, "held twice"
                self.held[event.call.stream] = event
            elif isinstance(event, Cancelled):
                assert self.held.pop(event.call.stream, None), "cancelled without being held"

    def answer(self, stream: int, verdict: Verdict) -> bool:
        """Answer a held call."""
        held = self.held.pop(stream)
        done = self.splice.answer(held.call, held.body, verdict)
        self._collect()
        return done

    def run(self) -> None:
        """Move bytes until nothing moves any more."""
        moved = True
        while moved:
            self.client.push()
            self.runtime.push()
            moved = bool(self.client.out or self.runtime.out or self._to_client or self._to_runtime)
            self.client_writes()
            self.runtime_reads()
            self.runtime_writes()
            self.client_reads()

    # -- calls -----------------------------------------------------------------------------------------------------

    def start(self, path: str, message: bytes = b"", *, end: bool = True) -> int:
        """Begin a call with one message, as far as windows allow."""
        stream = self.client.open(path)
        self.client.queue(stream, grpc(message), end=end)
        self.client.push(stream)
        return stream

    def unary(self, path: str, message: bytes = b"", reply: bytes = b"0 reply") -> Half:
        """A whole call that is not held."""
        stream = self.start(path, message)
        self.run()
        assert stream in self.runtime.streams, f"the call {path} did not reach the runtime"
        half = self.runtime.streams[stream]
        assert (bytes(half.body), half.ended) == (grpc(message), True), "the request did not arrive whole"
        self.runtime.queue_reply(stream, reply)
        self.run()
        return self.client.streams[stream]

    def check_version(self) -> None:
        """A small call that is in no table is answered."""
        half = self.unary(VERSION, b"version", b"v1")
        assert (half.ended, half.reset, bytes(half.body), half.status) == (True, None, grpc(b"v1"), "0")

    def check_rest(self) -> None:
        """The ledgers balance, nothing waits, and the oracle's windows are the ledgers'."""
        connection = self.splice.connection
        requests, replies = connection.requests, connection.replies
        for ledger in (requests, replies):
            assert ledger.sender + ledger.in_flight == ledger.receiver + ledger.debt
            assert ledger.in_flight == 0
        assert connection.held_bytes == connection.copied_bytes == connection.stats.kept_bytes == 0
        for out in (connection.to_runtime, connection.to_client):
            assert not out.queues
            assert out.queued_bytes == 0
            assert not out.chunks
        assert (self.client.send_window, self.runtime.recv_window) == (requests.sender, requests.receiver)
        assert (self.runtime.send_window, self.client.recv_window) == (replies.sender, replies.receiver)
        assert set(connection.to_runtime.deltas) <= set(connection.streams)
        assert set(connection.to_client.deltas) <= set(connection.streams)
