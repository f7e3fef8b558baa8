"""Calls of our own to the runtime."""

import asyncio
import socket
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.node.world import Slow

AWAY = 8
"""Calls that fail before the runtime comes: by then gRPC would wait for a second until it tries again."""


async def test_a_runtime_that_is_back_is_reached_by_the_next_call(tmp_path: Path) -> None:
    """However many calls have failed before; otherwise a start right after a restart would be refused."""
    path = tmp_path / "runtime.sock"
    client = RuntimeClient(f"unix://{path}")
    for _ in range(AWAY):
        with pytest.raises(RuntimeCallError) as caught:
            await client.version()
        assert caught.value.code is StatusCode.UNAVAILABLE
    async with EmbeddedRuntime(path):
        assert (await client.version()).runtime_name
    await client.close()


async def test_a_runtime_that_replaces_one_that_hangs_is_reached(tmp_path: Path) -> None:
    """The connection to the one that hangs stays open; after a Version without an answer, a new one is made."""
    path = tmp_path / "runtime.sock"
    slow = Slow(Version=60.0)
    async with EmbeddedRuntime(path, RuntimeOptions(latency_s=slow)):
        client = RuntimeClient(f"unix://{path}", timeout_s=0.5)
        with pytest.raises(RuntimeCallError) as caught:
            await client.version()
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED

        path.rename(tmp_path / "former.sock")
        async with EmbeddedRuntime(path, RuntimeOptions(name="newer")):
            client._timeout_s = 60.0
            assert (await client.version()).runtime_name == "newer"
        await client.close()


async def test_a_call_whose_channel_another_one_drops_fails_like_any_other(tmp_path: Path) -> None:
    """Whoever waits for it was not cancelled: it would end without a word, and what it watches with it."""
    slow = Slow(ListContainers=60.0)
    async with EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(latency_s=slow)) as runtime:
        client = RuntimeClient(f"unix://{runtime.path}")
        waiting = asyncio.create_task(client.list_containers())
        await slow.asked.wait()

        await client.close()

        with pytest.raises(RuntimeCallError) as caught:
            await waiting
        assert caught.value.code is StatusCode.UNAVAILABLE


async def test_events_whose_channel_is_dropped_fail_alike(tmp_path: Path) -> None:
    """They are followed anew."""
    async with EmbeddedRuntime(tmp_path / "runtime.sock") as runtime:
        client = RuntimeClient(f"unix://{runtime.path}")
        await client.version()  # connects, so that the events do not connect after the channel is dropped
        events = client.container_events()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)

        await client.close()

        with pytest.raises(RuntimeCallError):
            await waiting


async def test_a_caller_that_is_cancelled_is_cancelled(tmp_path: Path) -> None:
    """Its call ends with it."""
    slow = Slow(ListContainers=60.0)
    async with EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(latency_s=slow)) as runtime:
        client = RuntimeClient(f"unix://{runtime.path}")
        waiting = asyncio.create_task(client.list_containers())
        await slow.asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.close()


@pytest.mark.parametrize("is_left", [False, True])
async def test_that_no_runtime_listens_is_told_in_a_sentence(tmp_path: Path, is_left: bool) -> None:
    """People read whose socket it is once, and no status codes; callers still have the code."""
    path = tmp_path / "runtime.sock"
    if is_left:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    client = RuntimeClient(f"unix://{path}")

    with pytest.raises(RuntimeCallError) as raised:
        await client.version()
    await client.close()

    assert str(raised.value) == f"no runtime listens on {path}"
    assert raised.value.is_away
