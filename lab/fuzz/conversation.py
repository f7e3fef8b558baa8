"""One script: two obeying peers talk through a splice, and everything they do is written down for `chunking`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from criproxy.errors import StatusCode
from criproxy.wire import frames
from criproxy.wire.calls import Outcome, Proceed, Refuse, Verdict
from criproxy.wire.flow import Ledger, Outflow
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Ended, Event, Held, Replied
from lab.fuzz.calls import METHODS, Method, gzipped, prefixed
from lab.fuzz.peer import Client, Fields, Half, Peer, Runtime, require
from lab.fuzz.source import BLOCK, Source
from lab.fuzz.tap import Tap

MAX_OPS = 160
MAX_STREAMS = 12
MAX_TODO_BYTES = 1 << 18
GRANT_LIMIT = 1 << 28
ALL = 1 << 30
BIG = 1 << 24

WINDOWS = (0, 1, 9, 100, 1000, 16_384, 65_535, 1 << 20)
FRAME_SIZES = (16_384, 16_385, 20_000, 1 << 20)
TABLE_SIZES = (0, 60, 4096, 65_536)
REFUSALS = ("", " 100 % of \N{SNOWMAN}", " " + "é" * 600)


@dataclass(frozen=True, slots=True)
class Fed:
    """A unit (frame or whole header block) came to the splice."""

    from_client: bool
    unit: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A held call got its verdict."""

    stream: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Drained:
    """The proxy was told to stop."""


Step = Fed | Answered | Drained


@dataclass(slots=True)
class Facts:
    """What is known of one call from outside."""

    method: Method
    held: Held | None = None
    verdict: Verdict | None = None
    cancelled: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    replied: list[bytes] = field(default_factory=list)
    turned_away: bool = False


class Conversation:
    """Runs a script step by step; every step is checked."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tap = Tap()
        self.splice = self.tap.splice
        self.client, self.runtime = Client(), Runtime()
        self.steps: list[Step] = []
        self.calls: dict[int, Facts] = {}
        self.waiting: list[Held] = []
        self.too_late: list[Held] = []
        self.runtime_goaway: int | None = None
        self.drained_at: int | None = None
        self._ops: list[Callable[[], object]] = [*self._client_ops(), *self._runtime_ops(), *self._own_ops()]

    def run(self) -> None:
        """Play the whole script."""
        self._greet()
        for _ in range(MAX_OPS):
            if self.source.exhausted:
                break
            choice = self.source.byte()
            self._ops[(choice & 0x7F) % len(self._ops)]()
            if choice & 0x80:
                self.settle()

    def _client_ops(self) -> list[Callable[[], object]]:
        client = self.client
        often = [self._open, self._open, *[self._client_data] * 4, self._client_end, self._client_end]
        return [*often, self._client_reset, lambda: self._read(client), *self._common_ops(client)]

    def _runtime_ops(self) -> list[Callable[[], object]]:
        runtime = self.runtime
        often = [self._reply_headers, self._reply_headers, *[self._reply_data] * 4, self._reply_end, self._reply_end]
        return [*often, self._runtime_reset, lambda: self._read(runtime), *self._common_ops(runtime)]

    def _own_ops(self) -> list[Callable[[], object]]:
        return [
            *[self._answer] * 5,
            self._answer_late,
            lambda: self.deliver(self.client, 1 + self.source.below(8)),
            lambda: self.deliver(self.runtime, 1 + self.source.below(8)),
            lambda: self.deliver(self.client, ALL),
            lambda: self.deliver(self.runtime, ALL),
            self.settle,
            self._rarely,
        ]

    def _common_ops(self, peer: Peer) -> list[Callable[[], object]]:
        return [
            lambda: self._grant_stream(peer),
            lambda: self._grant_stream(peer),
            lambda: self._grant_connection(peer),
            lambda: peer.announce(self._settings()),
            lambda: self._other_frame(peer),
        ]

    # -- moving bytes ----------------------------------------------------------------------------------------------

    def deliver(self, peer: Peer, count: int) -> int:
        """Give up to *count* units of a peer to the splice; returns how many there were."""
        for number in range(count):
            if not peer.out:
                return number
            self.step(Fed(peer is self.client, peer.out.popleft()))
        return count

    def settle(self) -> None:
        """Deliver and read until both peers have seen everything."""
        client, runtime = self.client, self.runtime
        for _ in range(100):
            moved = self.deliver(client, ALL) + self.deliver(runtime, ALL) + client.read(ALL) + runtime.read(ALL)
            if not moved:
                return
        require(False, "the peers and the splice do not come to rest")

    def step(self, step: Step) -> None:
        """Do one thing to the splice, write it down, and check what came of it."""
        self.steps.append(step)
        splice = self.splice
        match step:
            case Fed(from_client, unit):
                self.tap.feed(from_client, unit)
            case Answered(stream, verdict):
                held = self.calls[stream].held
                assert held is not None
                require(splice.answer(held.call, held.body, verdict), "a waiting call cannot be answered:", stream)
            case Drained():
                splice.go_away()
        self.collect()

    def collect(self) -> None:
        """Take what the splice has written and told."""
        to_client, to_runtime, events = self.tap.collect()
        self.client.receive(to_client)
        self.runtime.receive(to_runtime)
        for event in events:
            self._on_event(event)
        check_books(self.splice)

    def _on_event(self, event: Event) -> None:
        facts, stream = self.calls[event.call.stream], event.call.stream
        require(event.call.method == facts.method.path, "an event names the wrong method:", event)
        match event:
            case Held(_, body):
                require(facts.method.hold and facts.held is None, "a call is held that must not be:", stream)
                require(body == self.client.streams[stream].sent, "the held body is not what was sent:", stream)
                facts.held = event
                self.waiting.append(event)
            case Cancelled(call):
                held = facts.held
                require(held is not None and held in self.waiting and held.call is call, "cancelled but not waiting")
                assert held is not None
                facts.cancelled = True
                self.waiting.remove(held)
                self.too_late.append(held)
            case Replied(_, message):
                facts.replied.append(message)
            case Ended(_, outcome):
                require(facts.method.watch, "an end is told that nobody asked for:", stream)
                facts.outcomes.append(outcome)

    # -- both peers ------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        self.client.announce(self._settings())
        self.client.out[0] = frames.PREFACE + self.client.out[0]
        self.runtime.announce(self._settings())

    def _settings(self) -> dict[int, int]:
        source, choice = self.source, self.source.byte()
        settings = {}
        if choice & 1:
            settings[frames.SETTINGS_INITIAL_WINDOW_SIZE] = source.pick(WINDOWS)
        if choice & 2:
            settings[frames.SETTINGS_MAX_FRAME_SIZE] = source.pick(FRAME_SIZES)
        if choice & 4:
            settings[frames.SETTINGS_HEADER_TABLE_SIZE] = source.pick(TABLE_SIZES)
        if choice & 8:
            settings[0xFE03] = 1  # gRPC's own
        return settings

    def _read(self, peer: Peer) -> None:
        peer.read(1 + self.source.below(8))

    def _grant_stream(self, peer: Peer) -> None:
        half = self._choose([half for half in peer.streams.values() if not (half.got_end or half.reset)])
        if half and half.recv_delta < GRANT_LIMIT:
            peer.grant(half, 1 + self.source.size())

    def _grant_connection(self, peer: Peer) -> None:
        if peer.recv_window < GRANT_LIMIT:
            peer.grant(None, 1 + self.source.size())

    def _other_frame(self, peer: Peer) -> None:
        """PING, PRIORITY, and kinds that nobody knows."""
        source = self.source
        payload = source.byte().to_bytes(8, "big")
        match source.below(3):
            case 0:
                peer.pings.append(payload)
                peer.emit(frames.PING, 0, 0, payload)
            case 1:
                half = self._choose(list(peer.streams.values()))
                if half:
                    peer.emit(frames.PRIORITY, 0, half.id, payload[3:])
            case _:
                half = self._choose(list(peer.streams.values()))
                peer.emit(10 + source.below(246), source.byte(), half.id if half else 0, source.payload()[:16_384])

    def _choose(self, halves: list[Half]) -> Half | None:
        return self.source.pick(halves) if halves else None

    def _cuts(self) -> list[int]:
        return [self.source.byte() for _ in range(max(0, self.source.below(8) - 4))]

    def _message(self) -> bytes:
        """A message with its prefix; some are compressed, some cannot be read."""
        match self.source.below(8):
            case 0:
                return gzipped(self.source.payload())
            case 1:
                return prefixed(1 + self.source.below(3), self.source.payload())
            case _:
                return prefixed(0, self.source.payload())

    def _send_some(self, peer: Peer, half: Half) -> None:
        source = self.source
        if not half.todo and len(half.sent) < MAX_TODO_BYTES:
            half.todo += self._message()
        size = source.size() if source.chance(2) else ALL
        peer.send_data(half, size, source.byte() if source.chance(5) else None, end=source.chance(4))

    # -- the client ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        client, source = self.client, self.source
        if len(client.streams) >= MAX_STREAMS or client.goaway is not None:
            return
        method = source.pick(METHODS)
        fields: Fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", method.path.encode()))
        extra = source.byte()
        fields += ((b":authority", b"localhost"), (b"te", b"trailers"), (b"content-type", b"application/grpc"))
        if extra & 3:
            fields += ((b"grpc-encoding", (b"gzip", b"identity", b"snappy")[(extra & 3) - 1]),)
        if extra & 4:
            fields += ((b"x-%d" % (extra >> 5), BLOCK[: 20 << (extra >> 5)].hex().encode()),)
        half = client.open(fields, self._cuts(), end=source.chance(16), pad=source.byte() if extra & 8 else None)
        self.calls[half.id] = Facts(method)

    def _client_data(self) -> None:
        half = self._choose([half for half in self.client.streams.values() if half.may_send])
        if half:
            self._send_some(self.client, half)

    def _client_end(self) -> None:
        half = self._choose([half for half in self.client.streams.values() if half.may_send])
        if half is None:
            return
        half.todo.clear()
        if self.source.chance(4):
            self.client.send_block(half, ((b"x-trailer", b"t" * self.source.byte()),), self._cuts(), end=True)
        else:
            self.client.send_data(half, 0, None, end=True)

    def _client_reset(self) -> None:
        open_here = [h for h in self.client.streams.values() if not (h.reset or h.got_reset or (h.ended and h.got_end))]
        half = self._choose(open_here)
        if half and self.source.chance(2):
            self.client.send_reset(half, frames.CANCEL)

    # -- the runtime -----------------------------------------------------------------------------------------------

    def replying(self) -> list[Half]:
        """The streams on which the runtime may still send."""
        limit = ALL if self.runtime_goaway is None else self.runtime_goaway
        return [half for half in self.runtime.streams.values() if half.may_send and half.id <= limit]

    def _reply_headers(self) -> None:
        half = self._choose([half for half in self.replying() if not half.blocks_sent])
        if half:
            self.begin_reply(half, self._cuts())

    def begin_reply(self, half: Half, cuts: list[int]) -> None:
        """Send a reply's first header block."""
        fields = ((b":status", b"200"), (b"content-type", b"application/grpc"), (b"x-of", b"%d" % (half.id % 7)))
        self.runtime.send_block(half, fields, cuts, end=False)

    def _reply_data(self) -> None:
        half = self._choose([half for half in self.replying() if half.blocks_sent])
        if half:
            self._send_some(self.runtime, half)

    def _reply_end(self) -> None:
        half = self._choose(self.replying())
        if half:
            half.todo.clear()
            self.end_reply(half, self.source.byte() % 17, self._cuts())

    def end_reply(self, half: Half, code: int, cuts: list[int]) -> None:
        """Send trailers; a server that has not read the whole request resets the stream after them."""
        fields: Fields = ((b"grpc-status", b"%d" % code), (b"grpc-message", b"m" * code))
        if not half.blocks_sent:
            fields = ((b":status", b"200"), (b"content-type", b"application/grpc"), *fields)
        self.runtime.send_block(half, fields, cuts, end=True)

    def _runtime_reset(self) -> None:
        half = self._choose([half for half in self.runtime.streams.values() if not (half.reset or half.got_reset)])
        if half and not (half.ended and half.got_end) and self.source.chance(2):
            self.runtime.send_reset(half, self.source.pick((frames.NO_ERROR, frames.CANCEL, 7)))

    # -- verdicts and ends -----------------------------------------------------------------------------------------

    def _answer(self) -> None:
        if self.waiting:
            self.decide(self.source.pick(self.waiting), self._verdict())

    def decide(self, held: Held, verdict: Verdict) -> None:
        """Answer a waiting call."""
        self.waiting.remove(held)
        self.calls[held.call.stream].verdict = verdict
        self.step(Answered(held.call.stream, verdict))
        self.too_late.append(held)

    def _verdict(self) -> Verdict:
        source = self.source
        match source.below(6):
            case 0 | 1:
                return Proceed()
            case 2 | 3:
                return Proceed(source.payload())
            case 4:
                return Refuse(StatusCode(1 + source.below(16)), "refused" + source.pick(REFUSALS))
        return Proceed(BLOCK[:100_000])

    def _answer_late(self) -> None:
        """A verdict for a call that is over changes nothing."""
        if self.too_late:
            held = self.source.pick(self.too_late)
            require(
                not self.splice.answer(held.call, held.body, self._verdict()), "a verdict came too late and counted"
            )
            self.collect()

    def _rarely(self) -> None:
        match self.source.byte() % 32:
            case 31 if self.runtime_goaway is None:
                self.runtime_goaway = max(self.runtime.streams, default=0)
                last = self.runtime_goaway.to_bytes(4, "big")
                self.runtime.emit(frames.GOAWAY, 0, 0, last + bytes(4))
            case 30 if self.drained_at is None:
                self.drained_at = self.splice.connection.last_stream
                self.step(Drained())
            case 29:
                self.client.emit(frames.GOAWAY, 0, 0, bytes(8))


def check_books(splice: Splice) -> None:
    """The ledger property, and counters that must equal what they count."""
    connection = splice.connection
    pairs: tuple[tuple[Ledger, Outflow], ...] = (
        (connection.requests, connection.to_runtime),
        (connection.replies, connection.to_client),
    )
    for ledger, outflow in pairs:
        require(
            ledger.sender + ledger.in_flight == ledger.receiver + ledger.debt,
            "the ledger does not add up:",
            *(ledger.sender, ledger.in_flight, ledger.receiver, ledger.debt),
        )
        require(min(ledger.in_flight, ledger.debt, ledger.receiver) >= 0, "a negative amount in the ledger")
        waiting = sum(item.size for queue in outflow.queues.values() for item in queue)
        require(outflow.queued_bytes == waiting, "queued_bytes is wrong:", outflow.queued_bytes, waiting)
    held = sum(stream.hold.consumed for stream in connection.held() if stream.hold)
    require(connection.held_bytes == held, "held_bytes is wrong:", connection.held_bytes, held)
