"""The relay passes everything on, sees every call, and holds the one that it is told to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.chaos.kubelet import Caller
from lab.chaos.relay import Frames, Relay, Way
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions

LIMIT_S = 60


class Line:
    """A client, the relay, and a runtime."""

    def __init__(self, folder: Path) -> None:
        self.runtime = EmbeddedRuntime(folder / "runtime.sock", RuntimeOptions(containers=1))
        self.relay = Relay(folder / "relay.sock", folder / "runtime.sock")
        self.caller = Caller(f"unix://{folder}/relay.sock", "somebody", folder / "calls.log")
        self.other = Caller(f"unix://{folder}/relay.sock", "other", folder / "calls.log")
        self.log = folder / "calls.log"


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    """All of it runs."""
    line = Line(tmp_path)
    async with asyncio.timeout(LIMIT_S), line.runtime:
        await line.relay.start()
        yield line
        await line.caller.close()
        await line.other.close()
        await line.relay.stop()


async def remove(client: RuntimeClient, container_id: str) -> None:
    """Remove a container."""
    request = api.RemoveContainerRequest(container_id=container_id)
    await client.call("RemoveContainer", request, api.RemoveContainerResponse)


async def test_calls_pass_and_are_noted(line: Line) -> None:
    """With who called; a call without a mark is criproxy's own."""
    own = RuntimeClient(line.caller.endpoint)
    (container,) = await line.caller.list_containers()
    await own.version()
    await own.close()

    assert line.relay.passed == {("somebody", "ListContainers"), ("", "Version")}
    assert container.id
    assert "somebody ListContainers : OK" in line.log.read_text()


async def test_a_request_is_held_and_goes_on(line: Line) -> None:
    """While it is held, the runtime has not got it, and another connection is served."""
    (container,) = await line.other.list_containers()
    gate = line.relay.gate(Way.REQUEST, "RemoveContainer", lambda call: call.caller == "somebody")

    removal = asyncio.create_task(remove(line.caller, container.id))
    await gate.reached.wait()
    assert gate.call
    assert api.RemoveContainerRequest.FromString(gate.call.message).container_id == container.id
    assert len(await line.other.list_containers()) == 1
    gate.open()
    await removal

    assert await line.other.list_containers() == []
    assert gate.call.sent.is_set()


async def test_a_request_that_is_dropped_never_arrives(line: Line) -> None:
    """Its connection is lost with it."""
    (container,) = await line.other.list_containers()
    gate = line.relay.gate(Way.REQUEST, "RemoveContainer", lambda call: True)

    removal = asyncio.create_task(remove(line.caller, container.id))
    await gate.reached.wait()
    gate.drop()

    with pytest.raises(RuntimeCallError):
        await removal
    line.relay.remove(gate)
    assert len(await line.other.list_containers()) == 1


async def test_a_reply_is_held(line: Line) -> None:
    """The runtime has done it, and the client does not know."""
    (container,) = await line.other.list_containers()
    gate = line.relay.gate(Way.REPLY, "RemoveContainer", lambda call: True)

    removal = asyncio.create_task(remove(line.caller, container.id))
    await gate.reached.wait()
    assert await line.other.list_containers() == []
    assert not removal.done()
    gate.open()
    await removal

    assert gate.call
    assert gate.call.ended.is_set()


async def test_connections_can_be_cut(line: Line) -> None:
    """What is under way fails; the next call makes a new connection."""
    gate = line.relay.gate(Way.REQUEST, "Version", lambda call: True)
    call = asyncio.create_task(line.caller.version())
    await gate.reached.wait()

    assert line.relay.cut() == 1
    with pytest.raises(RuntimeCallError):
        await call
    line.relay.remove(gate)
    await line.caller.version()


def test_frames_are_found_however_the_bytes_come() -> None:
    """One byte at a time or all at once; the preface comes first."""
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\2\0\1\0\0\0\3ab" + b"\0\0\0\4\0\0\0\0\0"
    at_once = list(Frames(24).feed(data))
    frames = Frames(24)
    slowly = [frame for number in range(len(data)) for frame in frames.feed(data[number : number + 1])]

    assert at_once == slowly
    assert [(kind, flags, stream) for _, kind, flags, stream in at_once] == [(-1, 0, 0), (0, 1, 3), (4, 0, 0)]
    assert b"".join(raw for raw, *_ in at_once) == data
