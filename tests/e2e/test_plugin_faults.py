"""Criproxy as a plugin of a real containerd, when something goes wrong there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.nri import api_pb2 as nri
from criproxy.nri.connection import Connection
from lab.containerd.containerd import PrivateContainerd
from tests.e2e.scene import ALL, OWNED, Scene, owner, proxied, sharer
from tests.node.world import refusal


@asynccontextmanager
async def second_plugin(containerd: PrivateContainerd, cpus: str) -> AsyncIterator[None]:
    """Another plugin, which wants all containers on *cpus*."""
    ready = asyncio.Event()

    async def answer(method: str, request: bytes) -> bytes:
        if method == "Configure":
            return nri.ConfigureResponse(events=1 << (nri.CREATE_CONTAINER - 1)).SerializeToString()
        if method == "Synchronize":
            ready.set()
        if method != "CreateContainer":
            return b""
        reply = nri.CreateContainerResponse()
        reply.adjust.linux.resources.cpu.cpus = cpus
        return reply.SerializeToString()

    reader, writer = await asyncio.open_unix_connection(containerd.nri_socket)
    connection = Connection(reader, writer, answer, lambda *_: None)
    reading = asyncio.create_task(connection.run())
    request = nri.RegisterPluginRequest(plugin_name="second", plugin_idx="95")
    await connection.call("RegisterPlugin", request.SerializeToString())
    await ready.wait()
    yield
    connection.close()
    with suppress(CriproxyError):
        await reading


async def test_a_second_plugin_that_sets_cpus(scene: Scene, containerd: PrivateContainerd) -> None:
    """The create fails, and the place is free again; without that plugin, all is well."""
    async with second_plugin(containerd, "0"):
        for number in range(2):
            said = await refusal(scene.run(owner(f"owner-{number}")))
            assert "criproxy" in said.details
            assert "second" in said.details

    _, owned = await scene.run(owner("owner"))
    assert await scene.cpus(owned) == OWNED


async def test_a_handler_that_hangs(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Containers start soon, on CPUs that nobody owns; it is said, and they are placed when criproxy works again."""
    policy, hanging = f'policy: static\nreservedCpus: "{min(ALL)}"\n', ("-m", "lab.chaos.launcher", "create-hangs")
    async with asyncio.timeout(60), proxied(tmp_path, containerd, policy, hanging) as scene:
        begun_s = asyncio.get_running_loop().time()
        _, owned = await scene.run(owner("owner"))
        assert asyncio.get_running_loop().time() - begun_s < 10
        assert await scene.cpus(owned) == ALL
        said = " ".join((await scene.serve.notices()).values())
        assert "default/owner/c0" in said
        await scene.end()
        scene.serve._arguments[:3] = ["-m", "criproxy"]
        await scene.begin()
        await scene.moves_to(owned, OWNED)
        _, shared = await scene.run(sharer("shared"))
        assert await scene.cpus(shared) == ALL - OWNED
