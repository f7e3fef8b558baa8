"""The small kubelet that gives devices to pods, with criproxy's device plugin as its peer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.cri.podresources import PodresourcesClient
from criproxy.cri.runtime import RuntimeClient
from lab.emulator.runtime import IMAGE, EmbeddedRuntime
from lab.kubelet.device_endpoint import AdmissionError
from lab.kubelet.device_kubelet import PODRESOURCES_SOCKET, REGISTRATION_SOCKET, DeviceKubelet
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.deviceplugin.node import GPU, Node, offer

LIMIT_S = 60.0
PODS = [PodSpec(name, (ContainerSpec("main", IMAGE),)) for name in ("first", "second", "third")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="k") as name:
        yield Path(name)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[DeviceKubelet]:
    """A kubelet to which a device plugin offers the GPUs a and b."""
    node = Node(folder)
    async with asyncio.timeout(LIMIT_S), DeviceKubelet(folder) as kubelet:
        node.start_plugins()
        node.plugins.publish(offer("a", "b"))
        await kubelet.until(lambda: kubelet.healthy(GPU) == ["a", "b"], LIMIT_S)
        yield kubelet
        await node.stop_plugins()


async def test_each_pod_gets_devices_of_its_own(kubelet: DeviceKubelet) -> None:
    """A pod for which none is left is not admitted, until another one has given its device back."""
    given = [await kubelet.admit(pod, "main", {GPU: 1}) for pod in PODS[:2]]
    assert sorted(each.ids for (each,) in given) == [("a",), ("b",)]
    with pytest.raises(AdmissionError, match="Requested: 1, Available: 0"):
        await kubelet.admit(PODS[2], "main", {GPU: 1})

    kubelet.remove(PODS[0])

    assert await kubelet.admit(PODS[2], "main", {GPU: 1}) == given[0]


async def test_podresources_tells_what_pods_have(kubelet: DeviceKubelet, folder: Path) -> None:
    """By pod and container, to clients that also know newer kubelets."""
    (given,) = await kubelet.admit(PODS[0], "main", {GPU: 1})
    client = PodresourcesClient(folder / PODRESOURCES_SOCKET)

    found = await client.pods("default", "first", LIMIT_S)
    in_use = await client.in_use(LIMIT_S)
    await client.close()

    assert found == [{"main": {GPU: given.ids}}]
    assert in_use == {GPU: frozenset(given.ids)}


async def test_a_restart_keeps_what_pods_have(kubelet: DeviceKubelet) -> None:
    """The plugin registers again, and a pod keeps its device."""
    given = await kubelet.admit(PODS[0], "main", {GPU: 1})

    await kubelet.stop()
    await kubelet.start()
    await kubelet.until(lambda: kubelet.healthy(GPU) == ["a", "b"], LIMIT_S)

    assert await kubelet.admit(PODS[0], "main", {GPU: 1}) == given
    assert kubelet.manager.in_use(GPU) == set(given[0].ids)


async def test_a_plugin_of_another_version_is_refused(kubelet: DeviceKubelet, folder: Path) -> None:
    """It learns which version the kubelet takes."""
    async with grpc.aio.insecure_channel(f"unix://{folder / REGISTRATION_SOCKET}") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError, match='Supported version is "v1beta1"'):
            await register(api.RegisterRequest(version="v1alpha", endpoint="x.sock", resource_name="x.com/card"))


async def test_a_create_has_what_the_container_was_given(kubelet: DeviceKubelet, folder: Path) -> None:
    """What the plugin answers becomes part of the create."""
    pod = PODS[0]
    given = await kubelet.admit(pod, "main", {GPU: 1})
    async with EmbeddedRuntime(folder / "r.sock") as runtime:
        client = RuntimeClient(f"unix://{runtime.path}")
        runs = MiniKubelet(client)

        key = await runs.create(pod, await runs.run_sandbox(pod), pod.containers[0], given=given)

        envs = runtime.core.records.containers[key].config.envs
        await client.close()
    assert [(each.key, each.value) for each in envs] == [("IDS", given[0].ids[0].encode())]
