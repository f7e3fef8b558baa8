"""Paths, messages and errors of the embedded runtime on the wire."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from criproxy.cri import api_pb2 as cri
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import until

SERVICE = "/runtime.v1.RuntimeService"
POD = PodSpec("pod", (ContainerSpec("main", IMAGE),))


@pytest.fixture
async def channel(runtime: EmbeddedRuntime) -> AsyncIterator[grpc.aio.Channel]:
    """Connect without serialisers: bytes in, bytes out."""
    async with grpc.aio.insecure_channel(f"unix://{runtime.path}", options=[("grpc.default_authority", "x")]) as opened:
        yield opened


async def ask(channel: grpc.aio.Channel, path: str, data: bytes = b"") -> bytes:
    """Make a unary call with the bytes of a message."""
    return await channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)(data)


async def listen(channel: grpc.aio.Channel, path: str, data: bytes = b"") -> AsyncIterator[bytes]:
    """Yield the messages of a call as bytes."""
    async for message in channel.unary_stream(path, request_serializer=bytes, response_deserializer=bytes)(data):
        yield message


async def test_both_versions_of_cri_are_served(channel: grpc.aio.Channel) -> None:
    """The reply to Version names the version of the path."""
    versions = []
    for version in ("v1", "v1alpha2"):
        data = await ask(channel, f"/runtime.{version}.RuntimeService/Version")
        versions.append(cri.VersionResponse.FromString(data).runtime_api_version)

    assert versions == ["v1", "v1alpha2"]


async def test_events_tell_the_life_of_a_pod(
    channel: grpc.aio.Channel, kubelet: MiniKubelet, runtime: EmbeddedRuntime
) -> None:
    """Every change comes in order, with the state of the whole pod."""
    told = asyncio.ensure_future(_take(listen(channel, f"{SERVICE}/GetContainerEvents"), 8))
    await until(lambda: runtime.core.events.listeners)

    sandbox_id, ids = await kubelet.run_pod(POD)
    await kubelet.remove_pod(sandbox_id)

    async with asyncio.timeout(60):
        seen = await told
    assert seen == [
        (sandbox_id, "CREATED", []),
        (sandbox_id, "STARTED", []),
        (ids["main"], "CREATED", ["CREATED"]),
        (ids["main"], "STARTED", ["RUNNING"]),
        (ids["main"], "STOPPED", ["EXITED"]),
        (sandbox_id, "STOPPED", ["EXITED"]),
        (ids["main"], "DELETED", []),
        (sandbox_id, "DELETED", []),
    ]


async def _take(events: AsyncIterator[bytes], count: int) -> list[tuple[str, str, list[str]]]:
    seen = []
    async for data in events:
        event = cri.ContainerEventResponse.FromString(data)
        kind = cri.ContainerEventType.Name(event.container_event_type).split("_")[1]
        states = [cri.ContainerState.Name(one.state).split("_")[1] for one in event.containers_statuses]
        seen.append((event.container_id, kind, states))
        if len(seen) == count:
            break
    return seen


class TestOlder:
    """A runtime that lacks what newer ones have."""

    @pytest.fixture
    def options(self) -> RuntimeOptions:
        """Take two methods away."""
        return RuntimeOptions(missing=frozenset({"RuntimeConfig", "GetContainerEvents"}))

    @pytest.mark.parametrize("method", ["RuntimeConfig", "GetContainerEvents"])
    async def test_missing_methods_are_unknown(self, channel: grpc.aio.Channel, method: str) -> None:
        """They answer as any invented method does."""
        with pytest.raises(grpc.aio.AioRpcError, match=f"unknown method {method} for service"):
            await ask(channel, f"{SERVICE}/{method}")
