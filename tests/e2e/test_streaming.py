"""Data flows over the URLs that Exec, Attach and PortForward give, when they were asked for through the splice."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests.e2e.through import Growing, proxy

STDIN, STDOUT, STDERR, STATUS = range(4)
"""Channels of the protocol v4.channel.k8s.io: the first byte of each message."""
ECHO = ContainerSpec("main", IMAGE, ("/bin/sh", "-c", "while read line; do echo got $line; done"))
POD = PodSpec("streams", (ECHO,))


@dataclass(frozen=True, slots=True)
class Streams:
    """A pod whose container echoes its standard input, and the client that asked for it through the splice."""

    client: RuntimeClient
    sandbox_id: str
    container_id: str


@pytest.fixture
async def streams(containerd: PrivateContainerd, tmp_path: Path) -> AsyncIterator[Streams]:
    """Run the pod."""
    async with proxy(containerd, tmp_path / "proxy.sock", Growing().table):
        client = RuntimeClient(f"unix://{tmp_path}/proxy.sock")
        kubelet = MiniKubelet(client, containerd.cgroups)
        sandbox_id = await kubelet.run_sandbox(POD)
        config = container_config(POD, ECHO, 8 << 30)
        config.stdin = True
        create = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(POD, containerd.cgroups.root)
        )
        container_id = (await client.call("CreateContainer", create, cri.CreateContainerResponse)).container_id
        await kubelet.start(container_id)
        yield Streams(client, sandbox_id, container_id)
        await client.close()


async def converse(url: str, sent: bytes, expected: dict[int, bytes]) -> dict[int, bytes]:
    """Send to channel 0, and collect by channel until everything expected has come or the other side closes."""
    received: dict[int, bytes] = {}
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=["v4.channel.k8s.io"]) as connection,
    ):
        await connection.send_bytes(bytes([STDIN]) + sent)
        async for message in connection:
            channel = message.data[0]
            received[channel] = received.get(channel, b"") + message.data[1:]
            if received == expected:
                break
    return received


async def test_a_command_gets_input_and_gives_output_and_exit_code(streams: Streams) -> None:
    """All four channels of Exec work."""
    script = "read line; echo out $line; echo err >&2; exit 3"
    request = cri.ExecRequest(
        container_id=streams.container_id, cmd=["/bin/sh", "-c", script], stdin=True, stdout=True, stderr=True
    )
    url = (await streams.client.call("Exec", request, cri.ExecResponse)).url

    received = await converse(url, b"hello\n", {})

    assert (received[STDOUT], received[STDERR]) == (b"out hello\n", b"err\n")
    assert json.loads(received[STATUS])["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_a_container_can_be_talked_to(streams: Streams) -> None:
    """Attach reaches standard input and output of the container's process."""
    request = cri.AttachRequest(container_id=streams.container_id, stdin=True, stdout=True, stderr=True)
    url = (await streams.client.call("Attach", request, cri.AttachResponse)).url

    received = await converse(url, b"hello\n", {STDOUT: b"got hello\n"})

    assert received == {STDOUT: b"got hello\n"}


async def test_a_port_of_the_pod_can_be_reached(streams: Streams) -> None:
    """PortForward carries data both ways; each channel begins with the number of the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"answer to " + await reader.read(100))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]  # a port of the host is a port of a host-network pod
        request = cri.PortForwardRequest(pod_sandbox_id=streams.sandbox_id, port=[port])
        url = (await streams.client.call("PortForward", request, cri.PortForwardResponse)).url
        number = port.to_bytes(2, "little")

        received = await converse(url, b"ping", {0: number + b"answer to ping", 1: number})

    assert received == {0: number + b"answer to ping", 1: number}
