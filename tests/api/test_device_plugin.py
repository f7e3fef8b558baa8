"""What the device plugin asks the daemon, over its control socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.cli.client import ask
from criproxy.observe.control_socket import ControlServer
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import Options
from criproxy.wire.sockets import listen
from tests.control.world import World, owner, sharer


@asynccontextmanager
async def asked(world: World, directory: Path) -> AsyncIterator[Any]:
    """A function that asks the controller of *world* over a control socket."""
    listener = listen(str(directory / "control.sock"), 0o600)
    server = ControlServer(DevicePluginCommands(world.controller).commands())
    await server.start(listener.sock)
    try:
        yield lambda command, **arguments: asyncio.to_thread(ask, listener.path, command, arguments)
    finally:
        await server.stop()
        listener.close()


async def test_free_cpus(tmp_path: Path) -> None:
    """The milli-CPU that no container asks for, by NUMA node; it follows each change."""
    async with World(tmp_path) as world, asked(world, tmp_path) as say:
        await world.poll(lambda: world.controller.ready)
        assert await say("free-cpus") == {"free_milli": {"0": 3000}}

        await world.run(owner("trader"))
        await world.run(sharer("web"))

        assert await say("free-cpus") == {"free_milli": {"0": 2000 - 100}}


async def test_free_cpus_are_unknown(tmp_path: Path) -> None:
    """With the policy none, criproxy does not know what containers ask for, and says so."""
    async with World(tmp_path, policy=NonePolicy(Options())) as world, asked(world, tmp_path) as say:
        assert await say("free-cpus") == {"free_milli": None}
