"""A `Splice` in memory between two strict endpoints: four pipes, the handlers' answers, and what must hold at rest."""

from criproxy.wire.calls import Call, Rule, Verdict
from criproxy.wire.message import encode
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Held
from criproxy.wire.stats import Stats
from tests.wire.rawpeer import Endpoint, Stream
from tests.wire.talk import ignore, never_called

PASS, WATCH, HOLD, EDIT, VERSION = "/t/Pass", "/t/Watch", "/t/Hold", "/t/Edit", "/t/Version"
GROWN_BYTES = 3_000


def _edit(call: Call, message: bytes) -> bytes | None:
    """Change a reply message, which starts with a digit that says how."""
    match message[:1]:
        case b"0":
            return None
        case b"1":
            return message[: len(message) // 2]
        case _:
            return message + b"+" * GROWN_BYTES


TABLE = {
    WATCH: Rule(done=ignore),
    HOLD: Rule(hold=never_called, done=ignore),
    EDIT: Rule(edit=_edit, done=ignore),
}


class Spliced:
    """Both peers of one splice."""

    def __init__(self, *, client: Endpoint | None = None, runtime: Endpoint | None = None) -> None:
        self.client = client or Endpoint(client=True)
        self.runtime = runtime or Endpoint(client=False)
        self.splice = Splice(1, Stats(TABLE))
        self.held: dict[int, Held] = {}
        self.told: list[str] = []
        """The kinds of the events."""
        self._to_client = bytearray()
        self._to_runtime = bytearray()

    # -- pipes -----------------------------------------------------------------------------------------------------

    def client_writes(self) -> None:
        """What the client has sent reaches the splice."""
        self.splice.from_client(self.client.take())
        self._collect()

    def runtime_writes(self) -> None:
        """What the runtime has sent reaches the splice."""
        self.splice.from_runtime(self.runtime.take())
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
            self.told.append(type(event).__name__.lower())
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
        self.client.queue(stream, encode(message), end=end)
        self.client.push(stream)
        return stream

    def unary(self, path: str, message: bytes = b"", reply: bytes = b"0 reply") -> Stream:
        """A whole call that is not held."""
        stream = self.start(path, message)
        self.run()
        assert stream in self.runtime.streams, f"the call {path} did not reach the runtime"
        half = self.runtime.streams[stream]
        assert (bytes(half.got), half.got_end) == (encode(message), True), "the request did not arrive whole"
        self.runtime.queue_reply(stream, reply)
        self.run()
        return self.client.streams[stream]

    def check_version(self) -> None:
        """A small call that is in no table is answered."""
        half = self.unary(VERSION, b"version", b"v1")
        assert (half.got_end, half.got_reset, bytes(half.got), half.status) == (True, False, encode(b"v1"), "0")

    def check_rest(self) -> None:
        """The ledgers balance, nothing waits, and the oracle's windows are the ledgers'."""
        connection = self.splice.connection
        requests, replies = connection.requests, connection.replies
        for ledger in (requests, replies):
            assert (ledger.sender + ledger.in_flight, ledger.in_flight) == (ledger.receiver + ledger.debt, 0)
        assert connection.held_bytes == connection.copied_bytes == connection.stats.kept_bytes == 0
        for out in (connection.to_runtime, connection.to_client):
            assert not out.queues
            assert out.queued_bytes == 0
            assert not out.chunks
        assert (self.client.send_window, self.runtime.recv_window) == (requests.sender, requests.receiver)
        assert (self.runtime.send_window, self.client.recv_window) == (replies.sender, replies.receiver)
        assert set(connection.to_runtime.deltas) <= set(connection.streams)
        assert set(connection.to_client.deltas) <= set(connection.streams)


def half_peers() -> Spliced:
    """Two peers that give window back when half of it is used, as C-core and nghttp2 do."""
    both = Spliced(client=Endpoint(client=True, grants="half"), runtime=Endpoint(client=False, grants="half"))
    both.run()
    return both
