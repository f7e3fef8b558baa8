"""The life of the plugin: registration, what it subscribes to, taking over in pieces, and connecting again."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from criproxy.errors import StatusCode
from criproxy.nri import api_pb2 as nri
from criproxy.nri import plugin as plugin_module
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.front import NriFront
from criproxy.nri.plugin import Plugin
from tests.daemons import until
from tests.denied import closed
from tests.nri.peer import OnCall, Peer, Runtime, accept

NOBODY = 65534
"""The user for whom closed directories are closed."""
OLD = 11
"""The number of events before 0.10."""


async def known() -> None:
    """It is known what runs."""


@asynccontextmanager
async def plugged(path: Path, on_call: OnCall = accept) -> AsyncIterator[tuple[Plugin, Runtime, "list[int]"]]:
    """A plugin that connects, the runtime, and a list that grows whenever the front wants to know what runs."""
    runtime = Runtime(path / "nri.sock", on_call)
    front, lost = NriFront(Path("/")), list[int]()
    front.on_runtime_lost = lambda: lost.append(1)
    plugin = Plugin(str(runtime.path), front)
    async with asyncio.timeout(30), runtime.listening():
        running = asyncio.create_task(plugin.run(known, lambda _: (), lambda *_: None))
        try:
            yield plugin, runtime, lost
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def taken_over(peer: Peer, version: str = "") -> nri.ConfigureResponse:
    """Configure and synchronize the plugin, as the runtime does; what it subscribes to."""
    configure = nri.ConfigureRequest(runtime_name="r", runtime_version="1", request_timeout=2000, NRI_version=version)
    answer = await peer.call("Configure", configure)
    assert not (await peer.call("Synchronize", nri.SynchronizeRequest())).status.code
    return nri.ConfigureResponse.FromString(answer.payload)


@pytest.mark.parametrize(("version", "is_newer"), [("", False), ("v0.12.0", True)])
async def test_it_subscribes_to_what_the_runtime_knows(tmp_path: Path, version: str, *, is_newer: bool) -> None:
    """An older one refuses a plugin that asks for more."""
    async with plugged(tmp_path) as (plugin, runtime, _):
        peer = await runtime.peers.get()
        events = (await taken_over(peer, version)).events

        await until(lambda: not plugin.problem)
        assert (events >> OLD > 0) is is_newer
        assert events & (1 << (nri.CREATE_CONTAINER - 1))
        assert (plugin.runtime, plugin.request_timeout_s) == (("r", "1"), 2.0)
        assert [call.method for call in peer.calls] == ["RegisterPlugin"]


async def test_what_runs_comes_in_pieces(tmp_path: Path) -> None:
    """Each piece is answered with the same `more`, without updates; with the last one, the plugin is accepted."""
    async with plugged(tmp_path) as (plugin, runtime, lost):
        peer = await runtime.peers.get()
        await peer.call("Configure", nri.ConfigureRequest())
        for more in (True, True, False):
            assert plugin.problem
            answer = await peer.call("Synchronize", nri.SynchronizeRequest(more=more))
            assert nri.SynchronizeResponse.FromString(answer.payload) == nri.SynchronizeResponse(more=more)

        await until(lambda: not plugin.problem)
        assert lost, "what was created meanwhile is looked for"


async def test_a_container_that_no_message_should_have_room_for(tmp_path: Path) -> None:
    """A tenant cannot keep criproxy from connecting: runtimes send what they have, in one message before NRI 0.8."""
    env = ["BIG=" + "x" * (16 << 20)]
    async with plugged(tmp_path) as (plugin, runtime, _):
        peer = await runtime.peers.get()
        await peer.call("Configure", nri.ConfigureRequest())
        everything = nri.SynchronizeRequest(containers=[nri.Container(id=each, env=env) for each in "ab"])
        assert not (await peer.call("Synchronize", everything)).status.code
        await until(lambda: not plugin.problem)


async def test_it_connects_again(tmp_path: Path) -> None:
    """As often as the connection ends; meanwhile it says so, and nothing can be sent."""
    async with plugged(tmp_path) as (plugin, runtime, lost):
        for number in (1, 2, 3):
            peer = await runtime.peers.get()
            await taken_over(peer)
            await until(lambda: not plugin.problem)
            assert plugin.connections == number
            lost.clear()
            peer.writer.close()
            await until(lambda: plugin.problem)
            await until(lambda: lost)


async def test_a_runtime_that_refuses_it(tmp_path: Path) -> None:
    """The reason is what it says."""

    def refuse(_: ttrpc.Request) -> ttrpc.Response:
        return ttrpc.Response(status=ttrpc.Status(code=StatusCode.UNKNOWN, message="no such plugin may connect"))

    async with plugged(tmp_path, refuse) as (plugin, runtime, _):
        await runtime.peers.get()
        await until(lambda: plugin.problem.endswith("register criproxy: no such plugin may connect"))


async def test_a_runtime_that_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries again after a bounded time."""
    monkeypatch.setattr(plugin_module, "REGISTER_S", 0.05)
    async with plugged(tmp_path, lambda _: None) as (plugin, runtime, _):
        await runtime.peers.get()
        await runtime.peers.get()
        assert plugin.problem == f"{runtime.path}: the runtime did not register criproxy within 0.05 s"


async def test_a_runtime_that_waits_until_calls_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its creates wait as well: one that gives up would not be asked about them."""
    monkeypatch.setattr(plugin_module, "SAID_S", 0.05)
    async with plugged(tmp_path) as (plugin, runtime, _):
        peer = await runtime.peers.get()
        await peer.call("Configure", nri.ConfigureRequest())
        await until(lambda: plugin.problem == plugin_module.BUSY)
        assert plugin.notice == plugin_module.BUSY, "and not that containers start without their place"
        assert not (await peer.call("Synchronize", nri.SynchronizeRequest())).status.code
        await until(lambda: not plugin.problem)
        assert plugin.connections == 1


async def test_a_runtime_that_ends_before_it_has_told_what_runs(tmp_path: Path) -> None:
    """As after any other end, it is connected again."""
    async with plugged(tmp_path) as (plugin, runtime, _):
        peer = await runtime.peers.get()
        await peer.call("Configure", nri.ConfigureRequest())
        peer.writer.close()
        await taken_over(await runtime.peers.get())
        await until(lambda: not plugin.problem)


@asynccontextmanager
async def alone(path: Path) -> AsyncIterator[Plugin]:
    """A plugin that connects to what is there."""
    plugin = Plugin(str(path), NriFront(Path("/")))
    running = asyncio.create_task(plugin.run(known, lambda _: (), lambda *_: None))
    try:
        async with asyncio.timeout(30):
            yield plugin
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_no_socket(tmp_path: Path) -> None:
    """NRI is switched off, or the runtime is not there."""
    async with alone(tmp_path / "nri.sock") as plugin:
        await until(lambda: plugin.problem.endswith(f"nri.sock: No such file or directory; {plugin_module.OFF}"))
        assert plugin.notice == f"{plugin_module.UNPLACED}: {plugin.problem}"


async def test_a_file_that_is_no_socket(tmp_path: Path) -> None:
    """It says nothing about whether NRI is off."""
    (tmp_path / "nri.sock").touch()
    async with alone(tmp_path / "nri.sock") as plugin:
        await until(lambda: plugin.problem == f"{plugin.path}: it is not a socket")


async def test_a_socket_in_a_closed_directory(tmp_path: Path) -> None:
    """Nobody may look whether it is one; it goes on trying."""
    path, is_root = closed(tmp_path / "closed") / "nri.sock", os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        async with alone(path) as plugin:
            await until(lambda: plugin.problem == f"{path}: Permission denied")
    finally:
        if is_root:
            os.seteuid(0)


async def test_a_runtime_that_is_away_is_looked_for_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it stays away: what it creates before criproxy is connected has no place."""
    monkeypatch.setattr(plugin_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(plugin_module, "LONGEST_PAUSE_S", 60.0)
    looks = list[int]()

    async def look() -> None:
        looks.append(1)

    plugin = Plugin(str(tmp_path / "nri.sock"), NriFront(Path("/")))
    running = asyncio.create_task(plugin.run(look, lambda _: (), lambda *_: None))
    async with asyncio.timeout(20):
        await until(lambda: len(looks) > 15)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
