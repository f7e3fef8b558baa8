"""The node on which criproxy is a plugin of containerd 1.7: kubelets talk to the runtime, which asks criproxy over NRI.

While criproxy is away, the runtime starts containers without their place: `checker.unplaced` says what is allowed to
them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.frames import PLUGIN, Frames, Kind
from lab.chaos.nodes import ContainerdNode
from lab.chaos.relay import Ends, SocketRelay
from lab.containerd.containerd import PrivateContainerd, available
from tests.daemons import until
from tests.runtimes import store

SERIES = "1.7"
_CHUNK = 1 << 16


def unavailable() -> str | None:
    """Why such a node cannot be on this machine; None if it can."""
    newer = store.by_series(SERIES)
    return available() or (None if store.find(store.cache_directory(), newer) else store.missing(newer))


class NriRelay(SocketRelay):
    """Passes everything on to the runtime's NRI socket; holds criproxy's answers if asked to."""

    def __init__(self, path: Path, target: Path) -> None:
        super().__init__(path, target)
        self._method = ""
        self._decided = asyncio.Event()
        self.connections = 0
        """How many there were."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when one ends, by whomever: the runtime does so if a kubelet gives up a call that it asks about."""
        self.asked = asyncio.Event()
        """The runtime has asked what is held."""

    def pumps(self, client: Ends, server: Ends) -> Sequence[Coroutine[None, None, None]]:
        """Questions of the runtime, and answers."""
        self.connections += 1
        return [self._ask(server[0], client[1]), self._answer(client[0], server[1])]

    def ended(self) -> None:
        """A connection has ended."""
        self.on_lost()

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
    tries = 12  # as a plugin, criproxy refuses a start that has to wait for others, instead of holding it

    async def _start_runtime(self, stack: AsyncExitStack) -> None:
        await super()._start_runtime(stack)
        self.bundles = self._containerd.directory / "state/io.containerd.runtime.v2.task/k8s.io"
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
            return not (await self.serve.ask("status"))["plugin"]["problem"]

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
        self.back()
