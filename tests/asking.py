"""A daemon's control socket in this process, commands that ask it, and what they print."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from rich.console import RenderableType

from criproxy.api.live import LiveNode, commands
from criproxy.cli import main
from criproxy.cli.client import ask
from criproxy.cli.render.console import console
from criproxy.model.text.notices import Notice
from criproxy.placement.policies.api import Policy
from criproxy.process.control_socket import Command, ControlServer
from criproxy.simulate.hosts import machine
from criproxy.wire.sockets import listen
from tests.node.world import FAST, STATIC, World
from tests.sysfs import write_sysfs

LIMIT_S = 60.0
NAMED = replace(FAST, policy_name="static")


@asynccontextmanager
async def serving(directory: Path, handlers: Mapping[str, Command]) -> AsyncIterator[Any]:
    """Answer commands on the control socket in *directory*; yield a function that asks it."""
    listener = listen(str(directory / "control.sock"), 0o600)
    server = ControlServer(handlers)
    await server.start(listener.sock)
    try:
        yield lambda command, **arguments: asyncio.to_thread(ask, listener.path, command, arguments)
    finally:
        await server.stop()
        listener.close()


def answering(
    world: World, directory: Path, notices: Sequence[Notice] = (), more: Mapping[str, Command] | None = None
) -> AbstractAsyncContextManager[Any]:
    """Answer on the control socket in *directory* as the daemon of *world* does, with these *notices*."""

    async def beside() -> Sequence[Notice]:
        return notices

    return serving(directory, {**commands(LiveNode(world.controller, beside)), **(more or {})})


@asynccontextmanager
async def daemon(directory: Path, policy: Policy = STATIC) -> AsyncIterator[World]:
    """A daemon that answers on the control socket in *directory*."""
    made = World(directory, settings=NAMED, policy=policy)
    async with asyncio.timeout(LIMIT_S), made as world, answering(world, directory):
        yield world


def places(directory: Path) -> list[str]:
    """The options that lead to the world below *directory*."""
    (directory / "host").mkdir(exist_ok=True)  # a root that does not exist is wrong use
    return [
        *("--control-socket", str(directory / "control.sock"), "--state-dir", str(directory / "state")),
        *("--host-root", str(directory / "host")),
    ]


def criproxy(*arguments: object, stdin: str | None = None) -> Result:
    """Run `criproxy`."""
    return CliRunner().invoke(main, [*map(str, arguments)], input=stdin)


async def invoke(*arguments: object) -> Result:
    """Run `criproxy` in a thread: the daemon lives on this one's loop."""
    return await asyncio.to_thread(criproxy, *arguments)


async def run(directory: Path, *arguments: str) -> Result:
    """Run `criproxy` on the node below *directory*, a machine of four CPUs."""
    write_sysfs(directory / "host", machine(nodes=1, cores=4, threads=1))
    return await invoke(*arguments, *places(directory))


def printed(renderable: RenderableType, width: int = 160) -> list[str]:
    """The lines that a terminal of that width shows, without blanks at their ends."""
    screen = console(file := io.StringIO(), width)
    screen.print(renderable)
    return [line.rstrip() for line in file.getvalue().splitlines()]
