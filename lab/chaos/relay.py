"""A relay between criproxy and the runtime: bytes pass unchanged, every call is seen, and one can be held on its way.

A held call stops its direction of its connection, as a slow or stuck runtime does; the other connections go on.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from hpack import Decoder

from criproxy.wire import frames

_OURS = re.compile(r"(?!criproxy$)(\S+)$")
"""The user agent of our kubelets, which say who they are; that of criproxy's own calls is criproxy."""
_HEADER = 9
_CHUNK = 1 << 16
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""Both directions of one side of a connection."""


class Way(Enum):
    """Where on its way a call is held."""

    REQUEST = "request"
    """All of it has come from criproxy, nothing has been passed on."""
    REPLY = "reply"
    """The runtime has answered, and criproxy does not know."""


@dataclass(slots=True)
class Passing:
    """A call that passes."""

    method: str
    """Without its service, such as ``CreateContainer``."""
    caller: str
    """The name of a kubelet; empty for criproxy's own calls."""
    message: bytes = b""
    """The request's message, without its prefix."""
    answered: bool = False
    """The runtime has begun to answer."""
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """The request has gone on to the runtime."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The whole reply has gone to criproxy."""


@dataclass(slots=True, eq=False)
class Gate:
    """Holds the first call that fits until it is opened or dropped."""

    way: Way
    fits: Callable[[Passing], bool]
    call: Passing | None = None
    """What it holds or has held."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """A call is held."""
    _decided: asyncio.Event = field(default_factory=asyncio.Event)
    _passes: bool = True

    def open(self) -> None:
        """Let it go on."""
        self._decided.set()

    def drop(self) -> None:
        """Lose it, and its connection with it."""
        self._passes = False
        self._decided.set()

    async def passes(self, call: Passing) -> bool:
        """Hold *call*, as long as it takes; whether it may go on."""
        self.call = call
        self.reached.set()
        await self._decided.wait()
        return self._passes


class Calls:
    """The calls of one connection, told apart by their streams."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._open: dict[int, Passing] = {}
        self._bodies: dict[int, bytearray] = {}
        self._block = b""
        self._ends = False

    def request_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> Passing | None:
        """Take in a frame from criproxy; the call whose request it completes."""
        ends = bool(flags & frames.END_STREAM)
        if kind == frames.RST_STREAM:
            self._open.pop(stream, None)
            self._bodies.pop(stream, None)
        elif kind in (frames.HEADERS, frames.CONTINUATION):
            self._block += frames.header_fragment(flags, payload) if kind == frames.HEADERS else payload
            self._ends = ends if kind == frames.HEADERS else self._ends
            if not flags & frames.END_HEADERS:
                return None
            headers = {header[0]: header[1] for header in self._decoder.decode(self._block, raw=True)}
            self._block, ends = b"", self._ends
            if path := headers.get(b":path"):
                ours = _OURS.match(headers.get(b"user-agent", b"").decode())
                self._open[stream] = Passing(path.decode().rpartition("/")[2], ours[1] if ours else "")
        elif kind == frames.DATA and stream in self._open:
            self._bodies.setdefault(stream, bytearray()).extend(frames.unpad(flags, payload))
        else:
            return None
        if ends and stream in self._open:
            self._open[stream].message = bytes(self._bodies.pop(stream, b"")[5:])
            return self._open[stream]
        return None

    def reply_frame(self, kind: int, stream: int) -> Passing | None:
        """Take in a frame from the runtime; the call whose reply it begins."""
        call = self._open.get(stream)
        if call is None or call.answered or kind not in (frames.HEADERS, frames.RST_STREAM):
            return None
        call.answered = True
        return call

    def reply_ended(self, kind: int, flags: int, stream: int) -> Passing | None:
        """The call that this frame from the runtime ends."""
        if kind == frames.RST_STREAM or (kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM):
            return self._open.pop(stream, None)
        return None


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self, preface: int) -> None:
        self._buffer = bytearray()
        self._preface = preface

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int, int, int]]:
        """Raw frame, type, flags and stream of all that is complete; a preface counts as a frame of type -1."""
        self._buffer += data
        if self._preface and len(self._buffer) >= self._preface:
            yield self._take(self._preface), -1, 0, 0
            self._preface = 0
        while not self._preface and len(self._buffer) >= _HEADER:
            size = _HEADER + int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < size:
                return
            raw = self._take(size)
            yield raw, raw[3], raw[4], int.from_bytes(raw[5:9], "big") & 0x7FFFFFFF

    def _take(self, size: int) -> bytes:
        raw = bytes(self._buffer[:size])
        del self._buffer[:size]
        return raw


class SocketRelay:
    """Listens at *path*, and ties each connection to one of its own to the socket *target*."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path, self._target = path, target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[asyncio.Task[None]] = set()

    def pumps(self, client: Ends, server: Ends) -> Sequence[Coroutine[None, None, None]]:
        """What moves the bytes of a connection, one for each direction; when one ends, so does the connection."""
        raise NotImplementedError

    def ended(self) -> None:
        """A connection has ended."""

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        if self._server:
            self._server.close()
            self.cut()
            for pump in self._running:
                pump.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()

    def cut(self) -> None:
        """Break every connection, on both sides."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            server = await asyncio.open_unix_connection(self._target)
        except OSError:  # the runtime is away: so are we
            writer.transport.abort()
            return
        writers = {writer, server[1]}
        self._writers |= writers
        pumps = {asyncio.create_task(each) for each in self.pumps((reader, writer), server)}
        self._running |= pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.ended()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._running -= pumps
        self._writers -= writers
        for end in writers:
            end.close()


class Relay(SocketRelay):
    """A relay that knows the calls of CRI, and can hold them.

    Attributes:
        passed: (caller, method) of each request that went on to the runtime.
    """

    def __init__(self, path: Path, target: Path) -> None:
        super().__init__(path, target)
        self._gates: list[Gate] = []
        self.passed: set[tuple[str, str]] = set()

    def pumps(self, client: Ends, server: Ends) -> Sequence[Coroutine[None, None, None]]:
        """Requests and replies."""
        calls = Calls()
        return [
            self._pump(Way.REQUEST, client[0], server[1], calls),
            self._pump(Way.REPLY, server[0], client[1], calls),
        ]

    def gate(self, way: Way, method: str, fits: Callable[[Passing], bool]) -> Gate:
        """Hold the next call of *method* that fits."""
        gate = Gate(way, lambda call: call.method == method and fits(call))
        self._gates.append(gate)
        return gate

    def remove(self, gate: Gate) -> None:
        """Hold nothing more with *gate*; what it holds is let go."""
        self._gates.remove(gate)
        gate.open()

    async def _pump(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, calls: Calls) -> None:
        cut = Frames(len(frames.PREFACE) if way is Way.REQUEST else 0)
        while data := await reader.read(_CHUNK):
            for raw, kind, flags, stream in cut.feed(data):
                if way is Way.REQUEST:
                    call = calls.request_frame(kind, flags, stream, raw[_HEADER:])
                else:
                    call = calls.reply_frame(kind, stream)
                if (call and not await self._passes(way, call)) or writer.is_closing():
                    return
                writer.write(raw)
                if way is Way.REQUEST and call:
                    call.sent.set()
                    self.passed.add((call.caller, call.method))
                if way is Way.REPLY and (over := calls.reply_ended(kind, flags, stream)):
                    over.ended.set()
            await writer.drain()

    async def _passes(self, way: Way, call: Passing) -> bool:
        gate = next((gate for gate in self._gates if not gate.call and gate.way is way and gate.fits(call)), None)
        return gate is None or await gate.passes(call)
