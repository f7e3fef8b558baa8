"""A second NRI plugin that sets CPUs, beside criproxy on a real containerd: every create fails, and that is said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import CriproxyError
from criproxy.nri import api_pb2 as nri
from criproxy.nri.connection import Connection
from criproxy.nri.rivals import MANY_FAILED
from tests.daemons import until
from tests.e2e.scene import Scene, sharer


@asynccontextmanager
async def second(path: Path, index: str) -> AsyncIterator[None]:
    """A plugin that puts every container on CPU 0, asked before or after criproxy by its *index*."""
    synchronized = asyncio.Event()

    async def answer(method: str, _: bytes) -> bytes:
        if method == "Synchronize":
            synchronized.set()
        if method == "Configure":
            return nri.ConfigureResponse(events=1 << (nri.CREATE_CONTAINER - 1)).SerializeToString()
        reply = nri.CreateContainerResponse()
        reply.adjust.linux.resources.cpu.cpus = "0"
        return reply.SerializeToString() if method == "CreateContainer" else b""

    connection = Connection(*await asyncio.open_unix_connection(path), answer, lambda *_: None)
    reading = asyncio.create_task(connection.run())
    request = nri.RegisterPluginRequest(plugin_name="second", plugin_idx=index)
    await connection.call("RegisterPlugin", request.SerializeToString())
    await synchronized.wait()
    yield
    connection.close()
    with suppress(CriproxyError):
        await reading


@pytest.mark.parametrize("index", ["10", "95"], ids=["before", "after"])
async def test_a_second_plugin_that_sets_cpus(scene: Scene, index: str) -> None:
    """After two creates that failed, `--check` says so; without that plugin, it ends when each has succeeded."""
    said = "another plugin may set the same fields"
    async with second(scene.nri_socket, index):
        sandbox_id = await scene.kubelet.run_sandbox(sharer("refused"))
        for number in range(MANY_FAILED):
            with pytest.raises(RuntimeCallError, match="both tried to set"):
                await scene.create(sharer("refused"), sandbox_id=sandbox_id, attempt=number)

        async def is_said() -> bool:
            return any(said in each["text"] for each in (await scene.serve.ask("status", check=True))["notices"])

        await until(is_said)
    await scene.create(sharer("refused"), sandbox_id=sandbox_id)
    assert not await is_said()
