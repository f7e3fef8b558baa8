"""The runtime's side of NRI, for tests: a socket, one plugin, and calls to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from criproxy.nri import api_pb2 as nri
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.connection import PACKAGE
from criproxy.nri.frames import PLUGIN, RUNTIME, Frame, Frames, Kind, encoded

OnCall = Callable[[ttrpc.Request], ttrpc.Response | None]
"""Answers a call of the plugin; None: not at all."""


@dataclass
class Peer:
    """One plugin's connection, as the runtime sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_call: OnCall
    calls: list[ttrpc.Request] = field(default_factory=list)
    """What the plugin has called."""
    is_gone: bool = False
    """Whether the connection has ended."""
    _stream: int = -1
    _answers: dict[int, asyncio.Future[ttrpc.Response]] = field(default_factory=dict)

    def begin(self, method: str, request: bytes, service: str = "Plugin") -> asyncio.Future[ttrpc.Response]:
        """Call the plugin, and return what its answer will be.

        Raises:
            ConnectionResetError: it has gone.
        """
        if self.is_gone:
            raise ConnectionResetError("the plugin has gone")
        self._stream += 2
        self._answers[self._stream] = answer = asyncio.get_running_loop().create_future()
        message = ttrpc.Request(service=PACKAGE + service, method=method, payload=request, timeout_nano=2_000_000_000)
        self.writer.write(encoded(Frame(PLUGIN, self._stream, Kind.REQUEST, message.SerializeToString())))
        return answer

    async def call(self, method: str, request: Message) -> ttrpc.Response:
        """Call the plugin."""
        return await self.begin(method, request.SerializeToString())

    async def serve(self) -> None:
        """Answer the plugin's calls until it ends the connection."""
        frames = Frames()
        try:
            while data := await self.reader.read(1 << 16):
                for frame in frames.feed(data):
                    self._take(frame)
        except ConnectionError:
            pass  # the plugin has ended in the middle of something
        finally:
            self.is_gone = True
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("the plugin has gone"))
                    answer.exception()  # who waits gets it, and perhaps nobody does
            self.writer.close()
            with suppress(OSError):
                await self.writer.wait_closed()

    def _take(self, frame: Frame) -> None:
        if frame.connection == PLUGIN:
            self._answers.pop(frame.stream).set_result(ttrpc.Response.FromString(frame.payload))
            return
        request = ttrpc.Request.FromString(frame.payload)
        self.calls.append(request)
        if response := self.on_call(request):
            self.writer.write(encoded(Frame(RUNTIME, frame.stream, Kind.RESPONSE, response.SerializeToString())))


def accept(request: ttrpc.Request) -> ttrpc.Response:
    """Answer as a runtime that accepts everything."""
    reply = nri.UpdateContainersResponse() if request.method == "UpdateContainers" else nri.Empty()
    return ttrpc.Response(payload=reply.SerializeToString())


@dataclass
class Runtime:
    """A runtime with an NRI socket."""

    path: Path
    on_call: OnCall = accept
    peers: "asyncio.Queue[Peer]" = field(default_factory=asyncio.Queue)
    """Those who have connected."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Take plugins."""
        serving = set[asyncio.Task[None]]()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = Peer(reader, writer, self.on_call)
            serving.add(asyncio.get_running_loop().create_task(peer.serve()))
            self.peers.put_nowait(peer)

        server = await asyncio.start_unix_server(connected, self.path)
        try:
            yield
        finally:
            server.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
