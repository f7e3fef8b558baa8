"""Device plugins beside a kubelet: they are registered, answer it, follow what is published, and outlive it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest

from criproxy.deviceplugin import deviceplugin_pb2 as api
from criproxy.deviceplugin.settings import State
from criproxy.devices.allocation import InvalidRequest
from tests.deviceplugin.device_manager import AdmissionError
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.node import GPU, QUICK, Named, Node, changed, offer

WEB, BATCH = Pod("uid-1", "web"), Pod("uid-2", "batch")


def backwards(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Prefer the last ids."""
    return [*required, *(each for each in reversed(available) if each not in required)][:size]


async def started(node: Node, *ids: str, **keys: object) -> None:
    """Start both, and wait until the kubelet has the ids."""
    await node.kubelet.start()
    node.start_plugins()
    node.plugins.publish(changed(offer(*ids), **keys))
    await node.kubelet.until_capacity(GPU, len(ids))


@pytest.mark.parametrize("way", ["kubelet.sock", "plugins_registry"])
async def test_a_container_is_given_what_the_plugin_says(node: Node, way: str) -> None:
    """The kubelet learns of the ids with their NUMA nodes, and a container gets the plugin's answer, in both ways."""
    node.way = "kubelet.sock" if way == "kubelet.sock" else "plugins_registry"
    await started(node, "a", "b")

    given = await node.kubelet.admit(WEB, {GPU: 1})

    assert given[GPU].ids == ("a",)
    assert dict(given[GPU].answer.envs) == {"IDS": "a"}
    await node.kubelet.until(lambda: node.kubelet.registered == [GPU])
    assert node.kubelet.manager is not None
    assert node.kubelet.manager.devices[GPU].numa_nodes == {"a": (0,), "b": (0,)}
    assert (await node.until_state(State.REGISTERED)).counts.allocated == 1


@pytest.mark.parametrize("killed", [False, True])
async def test_a_restarted_kubelet(node: Node, killed: bool) -> None:
    """Gets the plugin again, on a new socket, since it removed the former one; containers keep their ids."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    await node.kubelet.stop(killed=killed)
    await node.until_state(State.NO_KUBELET)
    await node.kubelet.start()
    assert node.kubelet.capacity(GPU) == (0, 0)
    await node.kubelet.until_capacity(GPU, 2)

    assert (await node.kubelet.admit(BATCH, {GPU: 1}))[GPU].ids == ("b",)
    await node.kubelet.until(lambda: node.kubelet.registered == [GPU, GPU])
    assert node.status().counts.served == 2
    assert node.status().counts.replaced == 0


async def test_a_kubelet_that_restarts_at_once(node: Node) -> None:
    """Has the plugin again without a pause, however often that happens."""
    node.times = replace(QUICK, first_pause_s=3600, longest_pause_s=3600)
    await started(node, "a")

    for _ in range(9):
        await node.kubelet.restart()
        await node.kubelet.until_capacity(GPU, 1)

    await node.kubelet.until(lambda: node.kubelet.registered == [GPU] * 10)


async def test_a_restarted_kubelet_with_plugins_registry(node: Node) -> None:
    """It finds the socket again, which stays where it is."""
    node.way = "plugins_registry"
    await started(node, "a", "b")

    await node.kubelet.restart()
    await node.kubelet.until_capacity(GPU, 2)

    await node.kubelet.until(lambda: node.kubelet.registered == [GPU, GPU])
    assert node.status().counts.served == 1


@pytest.mark.parametrize("way", ["kubelet.sock", "plugins_registry"])
async def test_a_restarted_plugin(node: Node, way: str) -> None:
    """Its devices are unhealthy while it is away; then a container can get the others."""
    node.way = "kubelet.sock" if way == "kubelet.sock" else "plugins_registry"
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    await node.stop_plugins()
    await node.kubelet.until_capacity(GPU, 2, healthy=0)
    with pytest.raises(AdmissionError, match="no healthy devices present; cannot allocate unhealthy devices"):
        await node.kubelet.admit(BATCH, {GPU: 1})
    node.start_plugins()
    node.plugins.publish(offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2)

    assert (await node.kubelet.admit(BATCH, {GPU: 1}))[GPU].ids == ("b",)


async def test_a_plugin_that_was_killed(node: Node) -> None:
    """The socket that it left behind does not hinder the next one."""
    await node.kubelet.start()
    left = node.kubelet.plugins_dir / "criproxy-nvidia.com_gpu.sock"
    import socket

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    node.start_plugins()
    node.plugins.publish(offer("a"))

    await node.kubelet.until_capacity(GPU, 1)
    assert node.status().socket == str(left)


async def test_a_late_kubelet(node: Node) -> None:
    """The plugin waits for the folder, which the kubelet makes, and for its socket; it says so once."""
    node.start_plugins()
    node.plugins.publish(offer("a"))
    status = await node.until_state(State.NO_SOCKET)
    assert status.text.startswith(f"{node.kubelet.plugins_dir}: is missing; ")

    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)

    assert node.said("is missing; the kubelet makes it") == 1


async def test_a_refused_plugin(node: Node) -> None:
    """It tries again, with pauses, says why once, and is registered as soon as the kubelet takes it."""
    await node.kubelet.start()
    node.kubelet.refuses = "not today"
    node.start_plugins()
    node.plugins.publish(offer("a"))
    await node.until_state(State.REFUSED)
    await node.kubelet.until(lambda: node.kubelet.tries >= 4)
    assert node.kubelet.capacity(GPU) == (0, 0)

    node.kubelet.refuses = ""
    await node.kubelet.until_capacity(GPU, 1)

    assert node.said("not today") == 1
    assert (await node.until_state(State.REGISTERED)).counts.refused >= 3


async def test_a_refused_plugin_with_plugins_registry(node: Node) -> None:
    """The kubelet says why, and tries again by itself."""
    node.way = "plugins_registry"
    await node.kubelet.start()
    node.kubelet.refuses = "not today"
    node.start_plugins()
    node.plugins.publish(offer("a"))
    assert (await node.until_state(State.REFUSED)).text == "not today"

    node.kubelet.refuses = ""
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_silent_kubelet(node: Node) -> None:
    """Nothing waits for its answer once it restarts."""
    node.times = replace(QUICK, register_s=3600)
    await node.kubelet.start()
    node.kubelet.answers.clear()
    node.start_plugins()
    node.plugins.publish(offer("a"))
    await node.kubelet.until(lambda: node.kubelet.tries == 1)

    await node.kubelet.stop()
    node.kubelet.answers.set()
    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_kubelet_that_never_asks(node: Node) -> None:
    """A registration without a stream is none: it is repeated, and the state has the reason."""
    node.times = replace(QUICK, stream_s=0.05)
    await node.kubelet.start()
    assert node.kubelet.manager is not None
    node.kubelet.manager.follows = False
    node.start_plugins()
    node.plugins.publish(offer("a"))
    assert "has not asked for the devices for 0.05 s" in (await node.until_state(State.REFUSED)).text

    node.kubelet.manager.follows = True
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_plugin_that_expired(node: Node) -> None:
    """The kubelet has forgotten a resource that was away for long; it is there again as before."""
    await started(node, "a")
    await node.stop_plugins()
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    assert node.kubelet.manager is not None
    node.kubelet.manager.expire()
    assert node.kubelet.capacity(GPU) == (0, 0)

    node.start_plugins()
    node.plugins.publish(offer("a"))
    await node.kubelet.until_capacity(GPU, 1)


async def test_an_init_container(node: Node) -> None:
    """Its devices are those of the pod's other containers: the plugin is asked for the rest with these as required."""
    await started(node, "a", "b", "c", preference=backwards)
    await node.kubelet.admit(WEB, {GPU: 1}, "init", init=True)

    given = await node.kubelet.admit(WEB, {GPU: 2})

    assert given[GPU].ids == ("c", "b")
    assert node.kubelet.manager is not None
    assert list(node.kubelet.manager.asked[-1][1].must_include_deviceIDs) == ["c"]


async def test_two_connections(node: Node) -> None:
    """Each has a stream of its own, with the list at once and after each change."""
    await started(node, "a")
    async with grpc.aio.insecure_channel(f"unix://{node.status().socket}") as channel:
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
    async with grpc.aio.insecure_channel(f"unix://{node.status().socket}") as channel:
        call: Any = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff")

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert (await node.kubelet.admit(WEB, {GPU: 1}))[GPU].ids == ("a",)


async def test_everything_is_cancelled(node: Node) -> None:
    """Sockets are removed then, too."""
    await started(node, "a")

    await node.tasks.stop()

    assert [each.name for each in node.kubelet.plugins_dir.iterdir() if each.suffix == ".sock"] == ["kubelet.sock"]


async def test_devices_change_while_the_kubelet_follows(node: Node) -> None:
    """It learns of cards that fail, recover, come and go, on one stream."""
    await started(node, "a", "b")

    node.plugins.publish(offer("a", "b", bad=["b"]))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)
    assert node.kubelet.unhealthy(GPU) == {"b"}
    node.plugins.publish(offer("a", "b", "c"))
    await node.kubelet.until_capacity(GPU, 3)
    node.plugins.publish(offer("c"))
    await node.kubelet.until_capacity(GPU, 1)

    assert node.kubelet.healthy(GPU) == {"c"}
    assert node.kubelet.registered == [GPU]


async def test_an_id_that_vanishes_while_it_is_in_use(node: Node) -> None:
    """It stays listed as unhealthy until its container has ended."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(offer("b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)
    assert node.kubelet.unhealthy(GPU) == {"a"}
    assert node.status().held == 1
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 1)

    assert node.status().held == 0


async def test_an_id_in_use_that_comes_back(node: Node) -> None:
    """It is as healthy as it is published."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    node.plugins.publish(offer("b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)

    node.plugins.publish(offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2)

    assert node.status().held == 0


async def test_an_id_that_vanished_while_the_plugin_was_away(node: Node) -> None:
    """It is listed as unhealthy as well, while its container has it."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()

    node.start_plugins()
    node.plugins.publish(offer("b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)

    assert node.kubelet.unhealthy(GPU) == {"a"}


async def test_nothing_is_known_of_ids_in_use(node: Node) -> None:
    """Where the kubelet does not say which are, those that are gone stay listed; it is said once."""
    await started(node, "a", "b")
    await node.kubelet.podresources.stop()
    node.plugins.publish(offer("b"))
    await node.log.until(lambda: node.said("does not say which devices are in use") == 1)
    asked = node.answers
    await node.log.until(lambda: node.answers > asked + 1)
    await node.kubelet.until_capacity(GPU, 2, healthy=1)
    assert node.status().held == 1

    await node.kubelet.podresources.start()
    await node.kubelet.until_capacity(GPU, 1)

    assert node.said("does not say which devices are in use") == 1


async def test_a_resource_that_is_offered_no_more(node: Node) -> None:
    """Its ids in use stay listed; when they are free it has no devices, and then no socket."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish({})
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 0)
    await node.log.until(lambda: node.said("offered no more") == 1)

    assert node.plugins.status == []


async def test_a_resource_that_comes_back(node: Node) -> None:
    """It is served and registered again."""
    await started(node, "a")
    node.plugins.publish({})
    await node.kubelet.until_capacity(GPU, 0)
    await node.log.until(lambda: node.said("offered no more") == 1)

    node.plugins.publish(offer("a"))
    await node.kubelet.until_capacity(GPU, 1)
    assert node.said("another process serves it") == 0


async def test_a_former_resource_of_ours_that_containers_have(node: Node) -> None:
    """After a start with another file, what containers have under its name is listed; other plugins' never is."""
    await started(node, "a")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()

    node.is_ours = lambda name: name == GPU
    node.start_plugins()
    node.plugins.publish(offer("a::0", "a::1", name=f"{GPU}.shared"))
    await node.kubelet.until(lambda: node.kubelet.registered.count(GPU) == 2)
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 0)


async def test_a_preference(node: Node) -> None:
    """The kubelet asks for it where there is a choice, and follows the answer."""
    await started(node, "a", "b", "c", preference=backwards)

    assert (await node.kubelet.admit(WEB, {GPU: 2}))[GPU].ids == ("c", "b")
    await node.kubelet.admit(BATCH, {GPU: 1})

    assert node.kubelet.manager is not None
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
    await started(node, "a", allocator=Named("a"))

    with pytest.raises(AdmissionError, match="code = Unknown desc = unknown device: a, which is unexpected"):
        await node.kubelet.admit(WEB, {GPU: 1})

    assert node.status().counts.allocations_refused == 1


class Broken:
    """Fails with a sentence that is not for pods."""

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[object]:
        """Fail."""
        raise RuntimeError("secret")

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Fail as well."""
        raise RuntimeError("secret")


async def test_an_allocator_that_fails(node: Node) -> None:
    """The pod does not get the error's text; the log does, once."""
    await started(node, "a", allocator=Broken())

    for _ in range(2):
        with pytest.raises(AdmissionError, match="code = Internal desc = criproxy failed; its log has the cause"):
            await node.kubelet.admit(WEB, {GPU: 1})

    assert node.log.events().count("a call of the kubelet failed") == 1
    assert "secret" in node.failures.recent()[0].text


async def test_a_preference_that_fails(node: Node) -> None:
    """The container gets the first ids."""
    await started(node, "a", "b", preference=Broken().prefer)

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
    assert node.said("the choice of devices takes too long") == 1


async def test_a_call_before_each_start(node: Node) -> None:
    """It is answered where it is asked for."""
    await started(node, "a", pre_start=True)

    assert (await node.kubelet.admit(WEB, {GPU: 1}))[GPU].ids == ("a",)


async def test_several_resources(node: Node) -> None:
    """Each has a socket of its own, and a container can have ids of all."""
    await node.kubelet.start()
    node.start_plugins()
    other = "example.com/npu"
    node.plugins.publish({**offer("a"), **offer("n", name=other)})
    await node.kubelet.until_capacity(GPU, 1)
    await node.kubelet.until_capacity(other, 1)

    given = await node.kubelet.admit(WEB, {GPU: 1, other: 1})

    assert {name: each.ids for name, each in given.items()} == {GPU: ("a",), other: ("n",)}


async def test_two_plugins_for_one_resource(node: Node) -> None:
    """The one that was replaced says so, counts it, and leaves the resource to the other until the kubelet restarts."""
    await started(node, "a")
    other = Node(node.root, way="plugins_registry")
    other.start_plugins()
    other.plugins.publish(offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2)

    status = await node.until_state(State.REPLACED)

    assert status.counts.replaced == 1
    assert "a second plugin registers this resource" in status.text
    await node.kubelet.until(lambda: node.kubelet.registered == [GPU, GPU])
    await other.stop_plugins()
    await node.kubelet.restart()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_replaced_plugin_tries_again(node: Node) -> None:
    """After a long pause: the other may have been a former process."""
    node.times = replace(QUICK, replaced_pauses_s=(0.05, 3600.0))
    await started(node, "a")
    other = Node(node.root, way="plugins_registry")
    other.start_plugins()
    other.plugins.publish(offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2)
    await other.stop_plugins()

    await node.kubelet.until_capacity(GPU, 1)


async def test_a_second_process(node: Node) -> None:
    """Says that the socket is taken, leaves the first one alone, and takes over when that ends."""
    await started(node, "a")
    second = Node(node.root)
    second.start_plugins()
    second.plugins.publish(offer("a", "b"))
    status = await second.until_state(State.NO_SOCKET)

    assert "another process serves it" in status.text
    assert node.kubelet.capacity(GPU) == (1, 1)
    await node.stop_plugins()
    await node.kubelet.until_capacity(GPU, 2)
    await second.stop_plugins()


async def test_ten_thousand_ids(node: Node) -> None:
    """They come in one message; more than that brings a warning."""
    ids = [f"GPU-{number:08}-1234-1234-1234-123456789abc::{number}" for number in range(10_001)]
    await started(node, *ids)

    assert node.said("the kubelet gets slow with so many devices") == 1
    assert node.status().left_out == 0


async def test_more_ids_than_a_message_has_room_for(node: Node) -> None:
    """The kubelet gets as many as fit, and the log says how many it does not get; the stream goes on."""
    node.largest_bytes = 1000
    await node.kubelet.start()
    node.start_plugins()
    node.plugins.publish(offer(*(f"id-{number:04}" for number in range(100))))
    await node.kubelet.until(lambda: node.kubelet.capacity(GPU)[0] > 0)

    status = node.status()

    assert node.kubelet.capacity(GPU)[0] == 100 - status.left_out
    assert 0 < status.left_out < 100
    assert node.said("too many devices for a message") == 1
    node.plugins.publish(offer("a"))
    await node.kubelet.until_capacity(GPU, 1)


async def test_the_kernel_reports_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without inotify the folder is looked at again and again, and a restarted kubelet has the plugin soon."""
    from asyncinotify import Inotify

    def none_left(self: Inotify, *_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Inotify, "__init__", none_left)
    monkeypatch.setattr(Inotify, "__del__", lambda _: None, raising=False)
    node.kubelet.plugins_dir.mkdir()
    node.start_plugins()
    node.plugins.publish(offer("a"))
    await node.until_state(State.NO_KUBELET)

    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)
    await node.kubelet.restart()
    await node.kubelet.until_capacity(GPU, 1)
    assert node.status().counts.replaced == 0


async def test_a_stop_while_nothing_works(node: Node) -> None:
    """A plugin that waits for the kubelet, or for its folder, ends at once, and leaves nothing behind."""
    node.start_plugins()
    node.plugins.publish(offer("a"))
    await node.until_state(State.NO_SOCKET)
    async with asyncio.timeout(10):
        await node.stop_plugins()

    await started(node, "a")
    await node.stop_plugins()
    assert [each.name for each in node.kubelet.plugins_dir.iterdir() if each != node.kubelet.socket] == []
