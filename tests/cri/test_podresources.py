"""Asking a kubelet for what it has allocated, against a server of podresources."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from criproxy.cri.podresources import LARGEST_REPLY_BYTES, PodresourcesClient, PodresourcesError
from criproxy.errors import StatusCode
from tests.allocations import Allocated, Allocations

PATIENT_S = 60.0
GPU = "nvidia.com/gpu"
WEB = Allocated(pod="web", pod_uid="u1", resource=GPU, ids=("GPU-b",), numa=1)


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Allocations]:
    """One that serves, and has given `WEB` its card."""
    kubelet = Allocations(tmp_path / "kubelet.sock", tmp_path / "checkpoint")
    kubelet.entries = [WEB]
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def client(kubelet: Allocations) -> AsyncIterator[PodresourcesClient]:
    """One that asks it."""
    client = PodresourcesClient(kubelet.socket)
    yield client
    await client.close()


async def test_what_a_pod_was_given(kubelet: Allocations, client: PodresourcesClient) -> None:
    """By container and resource, out of entries for each NUMA node or device."""
    kubelet.entries += [
        Allocated(pod="web", pod_uid="u1", resource=GPU, ids=("GPU-a", "GPU-b"), numa=0),
        Allocated(pod="web", pod_uid="u1", resource="vendor.com/nic", ids=("nic0",)),
        Allocated(pod="web", pod_uid="u1", container="plain"),
        Allocated(pod="web", pod_uid="u2", namespace="other", resource=GPU, ids=("GPU-c",)),
    ]

    found = await client.pods("default", "web", PATIENT_S)

    assert found == [{"main": {GPU: ("GPU-b", "GPU-a"), "vendor.com/nic": ("nic0",)}, "plain": {}}]
    assert (await client.pods("default", "nobody", PATIENT_S), kubelet.asked) == ([], {"Get": 2})


@pytest.mark.parametrize("get", ["unknown", "disabled"])
async def test_a_kubelet_without_get(kubelet: Allocations, client: PodresourcesClient, get: str) -> None:
    """It is asked for the list instead, and not for Get again until it was restarted."""
    kubelet.get = "unknown" if get == "unknown" else "disabled"

    assert await client.pods("default", "web", PATIENT_S) == [{"main": {GPU: ("GPU-b",)}}]
    assert (await client.pods("default", "nobody", PATIENT_S), kubelet.asked) == ([], {"Get": 1, "List": 2})

    await kubelet.stop()
    kubelet.get = "known"
    await kubelet.start()

    assert await client.pods("default", "web", PATIENT_S) == [{"main": {GPU: ("GPU-b",)}}]
    assert kubelet.asked == {"Get": 2, "List": 2}


async def test_two_pods_of_one_name(kubelet: Allocations, client: PodresourcesClient) -> None:
    """A list that has both, the former and its successor, gives both answers."""
    kubelet.get = "unknown"
    kubelet.entries.append(Allocated(pod="web", pod_uid="u2"))

    assert await client.pods("default", "web", PATIENT_S) == [{"main": {GPU: ("GPU-b",)}}, {"main": {}}]


async def test_a_silent_kubelet(kubelet: Allocations, client: PodresourcesClient) -> None:
    """The call ends at its deadline, and the next one finds a kubelet that talks again."""
    kubelet.answers.clear()
    with pytest.raises(PodresourcesError, match="Get: DEADLINE_EXCEEDED") as silent:
        await client.pods("default", "web", 0.05)
    assert silent.value.code is StatusCode.DEADLINE_EXCEEDED

    kubelet.answers.set()

    assert await client.pods("default", "web", PATIENT_S)


async def test_no_kubelet(kubelet: Allocations, client: PodresourcesClient) -> None:
    """Without a socket the call fails at once and says which; with the kubelet back, the same client goes on."""
    assert await client.pods("default", "web", PATIENT_S)
    await kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    with pytest.raises(PodresourcesError, match=r"kubelet\.sock: No such file") as absent:
        await client.pods("default", "web", PATIENT_S)
    assert absent.value.code is StatusCode.UNAVAILABLE

    await kubelet.start()

    assert await client.pods("default", "web", PATIENT_S)


Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


@asynccontextmanager
async def answering(path: Path, get: Handler, listing: Handler) -> AsyncIterator[PodresourcesClient]:
    """A client of a kubelet with these methods."""
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]]
    handlers = {name: grpc.unary_unary_rpc_method_handler(each) for name, each in (("Get", get), ("List", listing))}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    server.add_insecure_port(f"unix://{path}")
    await server.start()
    client = PodresourcesClient(path)
    yield client
    await client.close()
    await server.stop(grace=None)


async def _unknown(_: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
    raise AssertionError


@pytest.mark.parametrize("has_get", [True, False])
@pytest.mark.parametrize(
    ("reply", "mistake"),
    [
        pytest.param(b"\xff", "List: the reply cannot be read", id="no-message"),
        pytest.param(b"\x9a\x06\x03abc", "the reply cannot be read", id="of-another-message"),
        pytest.param(b"\x0a\x05\x0a\x01x\x12\x00", "", id="of-another-pod"),
    ],
)
async def test_a_reply_that_cannot_be_read(tmp_path: Path, reply: bytes, mistake: str, *, has_get: bool) -> None:
    """It is a failure of the call, and no pod without devices: bytes that happen to be a message say nothing."""

    async def answer(_: bytes, context: object) -> bytes:
        return reply

    async with answering(tmp_path / "kubelet.sock", answer if has_get else _unknown, answer) as client:
        if mistake:
            with pytest.raises(PodresourcesError, match=mistake):
                await client.pods("default", "web", PATIENT_S)
        else:  # after Get the list is asked, which is one
            assert await client.pods("default", "web", PATIENT_S) == []


async def test_a_big_node(kubelet: Allocations, client: PodresourcesClient) -> None:
    """A list larger than gRPC's usual limit is taken, one beyond that of the kubelet's own clients is not."""
    kubelet.get = "unknown"
    big = Allocated(pod="big", pod_uid="u9", resource=GPU, ids=("x" * (5 << 20),))
    kubelet.entries = [big, WEB]
    assert await client.pods("default", "web", PATIENT_S) == [{"main": {GPU: ("GPU-b",)}}]

    kubelet.entries = [Allocated(pod="big", pod_uid="u9", resource=GPU, ids=("x" * LARGEST_REPLY_BYTES,)), WEB]

    with pytest.raises(PodresourcesError, match="RESOURCE_EXHAUSTED"):
        await client.pods("default", "web", PATIENT_S)


async def test_what_is_in_use(kubelet: Allocations, client: PodresourcesClient) -> None:
    """The ids of all pods, by resource."""
    kubelet.entries += [
        Allocated(pod="batch", pod_uid="u2", resource=GPU, ids=("GPU-a",), numa=0),
        Allocated(pod="batch", pod_uid="u2", container="side", resource="example.com/npu", ids=("0",)),
        Allocated(pod="plain", pod_uid="u3"),
    ]

    assert await client.in_use(PATIENT_S) == {GPU: {"GPU-a", "GPU-b"}, "example.com/npu": {"0"}}
