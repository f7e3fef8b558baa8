"""Asking a kubelet for the specification of a pod, against a server of the Pods API."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from criproxy.cri import core_pod_pb2 as core
from criproxy.cri import pods, sizes
from criproxy.cri import pods_pb2 as api
from criproxy.cri.pods import ContainerSpec, Pods, quantity
from criproxy.model.resources import Interval
from criproxy.model.workload import Container, QosClass
from lab.kubelet.device_kubelet import serve, unary

MIB = 1 << 20
UID = "u-1"


class PodsKubelet:
    """A kubelet with the Pods API on a socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: dict[str, core.Pod] = {}
        self.asked: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.raw: bytes | None = None
        """Sent in place of a pod."""

    async def start(self) -> grpc.aio.Server:
        """Serve."""
        return await serve(self.socket, "v1alpha1.Pods", {"GetPod": unary(self._get, api.GetPodRequest)})

    async def _get(self, request: api.GetPodRequest, context: Any) -> api.GetPodResponse:  # noqa: ANN401 (grpc's)
        self.asked.append(request.podUID)
        await self.answers.wait()
        if request.podUID not in self.pods:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"pod with UID {request.podUID} not found")
        return api.GetPodResponse(pod=self.raw or self.pods[request.podUID].SerializeToString())


def pod_of(uid: str = UID, **memory: str) -> core.Pod:
    """A pod whose containers request *memory*, ``""`` for none; those named init and sidecar are what they say."""
    pod = core.Pod(metadata=core.ObjectMeta(uid=uid))
    for name, amount in memory.items():
        group = pod.spec.initContainers if name in ("init", "sidecar") else pod.spec.containers
        container = group.add(name=name, restartPolicy="Always" if name == "sidecar" else "")
        if amount:
            container.resources.requests["memory"].string = amount
    return pod


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[PodsKubelet]:
    """One that serves a pod of each role."""
    kubelet = PodsKubelet(tmp_path / "pods-api.sock")
    pod = kubelet.pods[UID] = pod_of(main="300Mi", init="", sidecar="1.5M", other="lots")
    pod.spec.ephemeralContainers.add().ephemeralContainerCommon.name = "debug"
    server = await kubelet.start()
    yield kubelet
    await server.stop(grace=None)


@pytest.fixture
async def known(kubelet: PodsKubelet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pods]:
    """The client of that kubelet, which waits as long as a slow machine needs."""
    monkeypatch.setattr(pods, "WAIT_S", 60.0)
    monkeypatch.setattr(pods, "ANSWER_S", 60.0)
    client = Pods(kubelet.socket)
    yield client
    await client.close()


async def test_roles_and_requests(known: Pods) -> None:
    """Init containers that restart always are sidecars; an unreadable request is unknown, a missing one is 0."""
    found = {name: await known.container(UID, name) for name in ("main", "init", "sidecar", "other", "debug")}

    assert found == {
        "main": ContainerSpec("main", 300 * MIB),
        "init": ContainerSpec("init", 0),
        "sidecar": ContainerSpec("sidecar", 1_500_000),
        "other": ContainerSpec("main", None),
        "debug": ContainerSpec("ephemeral", 0),
    }
    assert await known.container(UID, "nobody") is None


async def test_a_fresh_answer_is_not_asked_for_again(known: Pods, kubelet: PodsKubelet) -> None:
    """Neither by the creates of the pod's other containers, nor twice at the same time."""
    known.prefetch(UID)
    await asyncio.gather(*(known.container(UID, name) for name in ("main", "init", "sidecar")))
    await known.container(UID, "debug")

    assert kubelet.asked == [UID]


async def test_an_older_answer_is_asked_for_again(
    known: Pods, kubelet: PodsKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resize changes the requests of a pod: its next container gets the new ones."""
    monkeypatch.setattr(pods, "FRESH_S", 0.0)
    await known.container(UID, "main")
    kubelet.pods[UID] = pod_of(main="1Gi")

    assert await known.container(UID, "main") == ContainerSpec("main", 1 << 30)


async def test_a_pod_that_the_kubelet_does_not_know(known: Pods) -> None:
    """It says nothing about others."""
    assert await known.container("u-2", "main") is None
    assert await known.container(UID, "main") == ContainerSpec("main", 300 * MIB)


async def test_a_kubelet_that_hangs_holds_up_one_create(kubelet: PodsKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked again for a while: its call ends, and the next creates do not wait."""
    kubelet.answers.clear()
    monkeypatch.setattr(pods, "ANSWER_S", 0.01)
    known = Pods(kubelet.socket)
    task = known.prefetch(UID)
    assert task is not None
    await task

    assert await known.container(UID, "main") is None
    assert known.prefetch("u-2") is None
    kubelet.answers.set()
    await known.close()


@pytest.mark.parametrize("raw", [b"\xff\xff", pod_of("u-2", main="1Gi").SerializeToString()])
async def test_an_answer_that_is_another_message(known: Pods, kubelet: PodsKubelet, raw: bytes) -> None:
    """A kubelet with another version of the API, or about another pod, says nothing, and is left alone for a while."""
    kubelet.raw = raw

    assert await known.container(UID, "main") is None
    assert known.prefetch(UID) is None


async def test_without_the_api(tmp_path: Path) -> None:
    """Where no socket is, nothing is known, and creates do not look for it each time."""
    known = Pods(tmp_path / "missing.sock")

    assert await known.container(UID, "main") is None
    assert known.prefetch(UID) is None
    await known.close()
    assert known.prefetch("") is None


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("128974848", 128_974_848),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("128974848000m", 128_974_848),
        ("123Mi", 123 * MIB),
        ("1.5Gi", 3 << 29),
        (".5Ki", 512),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1n", 1),
    ],
)
def test_quantities(text: str, amount: int) -> None:
    """As Kubernetes reads them; fractions of a byte are rounded up."""
    assert quantity(text) == amount


@pytest.mark.parametrize("text", ["", "-1", "1KiB", "1e", "one", "1 Gi", "99E", "1e999", "1" * 50])
def test_what_is_no_quantity(text: str) -> None:
    """It is an error, and never a huge number."""
    with pytest.raises(ValueError, match=r"quantity|more than any machine"):
        quantity(text)


@pytest.mark.parametrize(
    ("qos", "shown", "spec", "expected"),
    [
        pytest.param("Burstable", (200, 400), 300, (300, 300), id="within-what-the-create-shows"),
        pytest.param("Burstable", (200, 400), 500, (200, 400), id="resized-since-then"),
        pytest.param("Burstable", None, 300, (300, 300), id="nothing-shown"),
        pytest.param("Burstable", (200, 400), None, (200, 400), id="unknown"),
        pytest.param("Guaranteed", (400, 400), 300, (400, 400), id="the-limit-of-a-guaranteed-container"),
    ],
)
def test_the_request_of_a_new_container(
    qos: str, shown: tuple[int, int] | None, spec: int | None, expected: tuple[int, int]
) -> None:
    """That of the specification, if the create does not contradict it."""
    request = Interval(*shown) if shown else None
    container = Container(key="k", pod="p", name="main", qos=QosClass(qos), memory_request_bytes=request)

    assert sizes.exactly(container, ContainerSpec("main", spec)).memory_request_bytes == Interval(*expected)
    assert sizes.exactly(container, None) == container
