"""The splice in front of a runtime, with handlers that make messages longer."""

import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from criproxy.cri.methods import METHODS, paths
from criproxy.wire.calls import Call, Proceed, Rule, Table, Verdict
from criproxy.wire.server import Proxy
from lab.containerd.containerd import PrivateContainerd
from tests.e2e.recording import PADDING

HELD = ("CreateContainer", "RunPodSandbox", "UpdateContainerResources", "StopContainer")
EDITED = "ContainerStatus"


class Growing:
    """Handlers that add 500 bytes to held requests and to one kind of reply, and count what they did."""

    def __init__(self) -> None:
        self.done = Counter[str]()
        self.table: Table = {path: Rule(hold=self.grow) for name in HELD for path in paths(name)} | {
            path: Rule(edit=self.lengthen) for path in paths(EDITED)
        }

    async def grow(self, call: Call, message: bytes) -> Verdict:
        """Add to a request; bytes that are no message raise, and go on as they came."""
        name = call.method.rpartition("/")[2]
        METHODS[name].request.FromString(message)
        self.done[name] += 1
        return Proceed(message + PADDING)

    def lengthen(self, call: Call, message: bytes) -> bytes:
        """Add to a reply."""
        self.done[EDITED] += 1
        return message + PADDING


@asynccontextmanager
async def proxy(containerd: PrivateContainerd, path: Path, table: Table) -> AsyncIterator[Proxy]:
    """Serve the splice at *path* in front of *containerd*."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    running = Proxy(str(containerd.socket), table)
    await running.start(listener)
    try:
        yield running
    finally:
        await running.drain()


def connect(path: Path) -> grpc.aio.Channel:
    """Open a channel as the kubelet does, on a connection of its own."""
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(f"unix://{path}", options=options)
