"""Whoever wants to know that the runtime may have been restarted is told, whichever side is the first to hang up."""

import asyncio
from pathlib import Path

import pytest

from criproxy.wire import frames
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import listen

HELLO = frames.frame(frames.SETTINGS, 0, 0)
GOAWAY = frames.frame(frames.GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
LIMIT_S = 60.0


@pytest.mark.parametrize(
    ("says", "runtime_hangs_up", "told"),
    [
        pytest.param(HELLO, True, 1, id="runtime-hangs-up"),
        pytest.param(HELLO + GOAWAY, False, 1, id="kubelet-hangs-up-after-a-goaway"),
        pytest.param(HELLO, False, 0, id="kubelet-hangs-up"),
    ],
)
async def test_a_lost_runtime_is_told_of(tmp_path: Path, says: bytes, runtime_hangs_up: bool, told: int) -> None:
    """Once for each connection; a kubelet that goes by itself says nothing about the runtime."""

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        if not runtime_hangs_up:
            await reader.read(-1)
        writer.close()

    losses: list[None] = []
    listener = listen(str(tmp_path / "criproxy.sock"), 0o600)
    proxy = Proxy(str(tmp_path / "runtime.sock"), {}, on_runtime_lost=lambda: losses.append(None))
    async with asyncio.timeout(LIMIT_S), await asyncio.start_unix_server(runtime, tmp_path / "runtime.sock"):
        await proxy.start(listener.sock)
        reader, writer = await asyncio.open_unix_connection(listener.path)
        writer.write(frames.PREFACE + HELLO)
        await (reader.read(-1) if runtime_hangs_up else reader.readexactly(len(says)))
        writer.close()
        while proxy.links:  # noqa: ASYNC110 (a proxy tells nobody of the end of one link)
            await asyncio.sleep(0.005)
        await proxy.drain(0)
    listener.close()

    assert len(losses) == told
