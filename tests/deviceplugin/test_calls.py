"""The kubelet's calls: what containers are given, which ids are preferred, and what goes wrong meanwhile."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import grpc
import pytest

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server.state import State
from criproxy.devices.evidence.device_request import InvalidRequest
from criproxy.devices.plugin.plan import Register
from lab.kubelet.device_endpoint import AdmissionError
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.node import GPU, QUICK, Named, Node, offer, started

WEB, BATCH = Pod("uid-1", "web"), Pod("uid-2", "batch")


def backwards(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Prefer the last ids."""
    return [*required, *(each for each in reversed(available) if each not in required)][:size]


@pytest.mark.parametrize("way", ["kubelet", "plugins-registry"])
async def test_a_container_is_given_what_the_plugin_says(node: Node, way: Register) -> None:
    """The kubelet learns of the ids with their NUMA nodes, and a container gets the plugin's answer, in both ways."""
    node.way = way
    await started(node, "a", "b")

    given = await node.kubelet.admit(WEB, {GPU: 1})

    assert given[GPU].ids == ("a",)
    assert dict(given[GPU].answer.envs) == {"IDS": "a"}
    await node.kubelet.until(lambda: node.kubelet.registered == [GPU])
    assert node.kubelet.manager.devices[GPU].numa_nodes == {"a": (0,), "b": (0,)}
    assert (await node.until_state(State.REGISTERED)).counts.allocated == 1


async def test_an_init_container(node: Node) -> None:
    """Its devices are those of the pod's other containers: the plugin is asked for the rest with these as required."""
    await started(node, "a", "b", "c", preference=backwards)
    await node.kubelet.admit(WEB, {GPU: 1}, "init", init=True)

    given = await node.kubelet.admit(WEB, {GPU: 2})

    assert given[GPU].ids == ("c", "b")
    assert list(node.kubelet.manager.asked[-1][1].must_include_deviceIDs) == ["c"]


async def test_two_connections(node: Node) -> None:
    """Each has a stream of its own, with the list at once and after each change."""
    await started(node, "a")
    async with grpc.aio.insecure_channel(f"unix://{node.plugin._path}") as channel:
        stream: Any = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch", response_deserializer=api.ListAndWatchResponse.FromString
        )
        second = stream(b"")
        assert [each.ID for each in (await second.read()).devices] == ["a"]

        node.plugins.publish(offer("a", "b"))

        assert [each.ID for each in (await second.read()).devices] == ["a", "b"]
    await node.kubelet.until_capacity(GPU, 2)


async def test_a_message_that_is_none(node: Node) -> None:
    """It ends the call, and nothing else."""
    await started(node, "a")
    async with grpc.aio.insecure_channel(f"unix://{node.plugin._path}") as channel:
        call: Any = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff")

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert (await node.kubelet.admit(WEB, {GPU: 1}))[GPU].ids == ("a",)


async def test_a_preference(node: Node) -> None:
    """The kubelet asks for it where there is a choice, and follows the answer."""
    await started(node, "a", "b", "c", preference=backwards)

    assert (await node.kubelet.admit(WEB, {GPU: 2}))[GPU].ids == ("c", "b")
    await node.kubelet.admit(BATCH, {GPU: 1})

    assert len(node.kubelet.manager.asked) == 1


async def test_a_preference_that_is_added(node: Node) -> None:
    """The kubelet hears of it by another registration."""
    await started(node, "a", "b", "c")
    node.plugins.publish(offer("a", "b", "c", preference=backwards))
    await node.kubelet.until(lambda: len(node.kubelet.registered) == 2)
    await node.kubelet.until_capacity(GPU, 3)

    assert (await node.kubelet.admit(WEB, {GPU: 1}))[GPU].ids == ("c",)


async def test_an_allocation_that_is_refused(node: Node) -> None:
    """The pod gets the allocator's sentence, with the code of NVIDIA's plugin."""
    await started(node, "a", allocate=Named("a"))

    with pytest.raises(AdmissionError, match="code = Unknown desc = unknown device: a, which is unexpected"):
        await node.kubelet.admit(WEB, {GPU: 1})

    assert node.status().counts.allocations_refused == 1


async def test_a_large_allocation_that_is_refused(node: Node) -> None:
    """Its log line has only the first ids, and their number."""
    await started(node, "a", allocate=Named("y" * 1000))
    ids = [f"{number:04}{'x' * 1000}" for number in range(1000)]
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[*ids[1:], "y" * 1000])])
    async with grpc.aio.insecure_channel(f"unix://{node.plugin._path}") as channel:
        call: Any = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        with pytest.raises(grpc.aio.AioRpcError, match="unknown device: yyy"):
            await call(request.SerializeToString())

    (line,) = [line for line in node.log.lines if "allocation refused" in str(line)]
    assert "0001xxx" in str(line)
    assert "1000" in str(line)
    assert len(str(line)) < 3000


def fail(*_: object) -> NoReturn:
    """Fail with a sentence that is not for pods."""
    raise RuntimeError("secret")


async def test_an_allocator_that_fails(node: Node) -> None:
    """The pod does not get the error's text; the log does, once."""
    await started(node, "a", allocate=fail)

    for _ in range(2):
        with pytest.raises(AdmissionError, match="code = Internal desc = criproxy failed; its log has the cause"):
            await node.kubelet.admit(WEB, {GPU: 1})

    assert node.log.events().count("a call of the kubelet failed") == 1
    assert "secret" in node.failures.recent()[0].text


async def test_a_preference_that_fails(node: Node) -> None:
    """The container gets the first ids."""
    await started(node, "a", "b", preference=fail)

    assert (await node.kubelet.admit(WEB, {GPU: 1}))[GPU].ids == ("a",)
    assert node.status().counts.preferences_failed == 1


def refusing(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Refuse the question."""
    raise InvalidRequest("no device with uuid: x")


async def test_a_preference_that_refuses(node: Node) -> None:
    """The pod gets its sentence behind NVIDIA's."""
    await started(node, "a", "b", preference=refusing)

    text = "error getting list of preferred allocation devices: no device with uuid: x"
    with pytest.raises(AdmissionError, match=text):
        await node.kubelet.admit(WEB, {GPU: 1})


async def test_a_preference_that_hangs(node: Node) -> None:
    """Containers get the first ids, and only the first of them waits; it is said once."""
    from threading import Event

    goes_on = Event()

    def hanging(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        goes_on.wait()
        return available

    node.times = replace(QUICK, preference_s=0.05)
    await started(node, "a", "b", "c", preference=hanging)
    try:
        assert (await node.kubelet.admit(WEB, {GPU: 1}))[GPU].ids == ("a",)
        assert (await node.kubelet.admit(BATCH, {GPU: 1}))[GPU].ids == ("b",)
    finally:
        goes_on.set()

    assert node.status().counts.preferences_late == 2
    assert node.said("choosing devices took too long") == 1
