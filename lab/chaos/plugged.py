"""The node on which criproxy is a plugin of containerd 1.7: kubelets talk to the runtime, which asks criproxy over NRI.

While criproxy is away, the runtime starts containers without their place. These are not judged before all is at rest:
by then, each must have its place.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.frames import PLUGIN, Frames, Kind
from lab.chaos.nodes import ContainerdNode
from lab.containerd.containerd import PrivateContainerd, available
from tests.daemons import until
from tests.runtimes import store

SERIES = "1.7"
_CHUNK = 1 << 16


def unavailable() -> str | None:
    """Why such a node cannot be on this machine; None if it can."""
    newer = store.by_series(SERIES)
    return available() or (None if store.find(store.cache_directory(), newer) else store.missing(newer))


class NriRelay:
    """Listens at *path*, and passes everything on to the runtime's NRI socket; holds criproxy's answers if asked to."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path, self._target = path, target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._method = ""
        self._decided = asyncio.Event()
        self.connections = 0
        """How many there were."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when one ends, by whomever: the runtime does so if a kubelet gives up a call that it asks about."""
        self.asked = asyncio.Event()
        """The runtime has asked what is held."""

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def stop(self) -> None:
        """Cut everything, and listen no more."""
        if self._server:
            self._server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break the connection, on both sides."""
        for writer in self._writers:
            writer.transport.abort()

    @asynccontextmanager
    async def holding(self, method: str) -> AsyncIterator[None]:
        """Pass nothing on to the runtime from its next call of *method* on, until the end of the block."""
        self._method, self._decided = method, asyncio.Event()
        self.asked.clear()
        try:
            yield
        finally:
            self._method = ""
            self._decided.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            to_reader, to_writer = await asyncio.open_unix_connection(self._target)
        except OSError:  # the runtime is away: so are we
            writer.transport.abort()
            return
        self.connections += 1
        self._writers |= {writer, to_writer}
        pumps = [
            asyncio.create_task(self._ask(to_reader, writer)),
            asyncio.create_task(self._answer(reader, to_writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.on_lost()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._writers -= {writer, to_writer}
            for end in (writer, to_writer):
                end.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        while data := await reader.read(_CHUNK):
            calls = [
                each.payload for each in frames.feed(data) if (each.connection, each.kind) == (PLUGIN, Kind.REQUEST)
            ]
            if self._method in {ttrpc.Request.FromString(payload).method for payload in calls}:
                self.asked.set()
            writer.write(data)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self._method and self.asked.is_set():
                await self._decided.wait()
            writer.write(data)
            await writer.drain()


class PluginNode(ContainerdNode):
    """This machine, with a private containerd that takes plugins."""

    runtime = "plugin"
    pause_s = 1.5

    async def _start_runtime(self, stack: AsyncExitStack) -> None:
        await super()._start_runtime(stack)
        self.nri = NriRelay(self.directory / "nri.sock", self._containerd.nri_socket)
        self.nri.on_lost = self._lost
        await self.nri.start()
        self._returning = asyncio.create_task(asyncio.sleep(0))
        stack.callback(self._stop_waiting)
        stack.push_async_callback(self.nri.stop)

    def _new_containerd(self) -> PrivateContainerd:
        programs = store.find(store.cache_directory(), store.by_series(SERIES))
        return PrivateContainerd(programs=programs, nri=True, is_front=True)

    @property
    def kubelets(self) -> Path:
        """The relay before the runtime."""
        return self.directory / "runtime.sock"

    def _heard_by(self) -> tuple[str, ...]:
        return ("--nri", f"unix://{self.directory / 'nri.sock'}")

    async def placing(self) -> None:
        """Wait until the runtime asks criproxy."""

        async def is_asked() -> bool:
            return "nri" not in await self.serve.notices()

        await until(is_asked, 0.01)

    async def cut_plugin(self) -> None:
        """Break the connection between the runtime and criproxy, which connects again."""
        before = self.nri.connections
        self.nri.cut()
        await until(lambda: self.nri.connections > before, 0.005)

    def _stop_waiting(self) -> None:
        self._returning.cancel()

    def _lost(self) -> None:
        self.lose()
        self._stop_waiting()
        self._returning = asyncio.create_task(self._return())

    async def _return(self) -> None:
        """Let kubelets go on when the runtime asks criproxy again."""
        before = self.nri.connections
        await until(lambda: self.nri.connections > before, 0.005)
        await self.placing()
        self.serving.set()
