"""Device plugins beside a kubelet: they are registered, answer it, follow what is published, and outlive it."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from criproxy.deviceplugin.server import servicer
from criproxy.deviceplugin.server.resource import device_list
from criproxy.deviceplugin.server.state import State, Times
from criproxy.devices.plugin.plan import Register
from criproxy.process.tasks import Backoff
from tests.clocks import skip
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.node import GPU, QUICK, Node, offer, started

WEB, BATCH = Pod("uid-1", "web"), Pod("uid-2", "batch")


async def test_a_registration_is_news(node: Node) -> None:
    """Whoever follows the states, such as the daemon's reports, need not wait for the next report to learn of it."""
    await started(node, "a")
    await node.until_state(State.REGISTERED)

    assert node.states[-1] == [State.REGISTERED]


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
    node.way = "plugins-registry"
    await started(node, "a", "b")

    await node.kubelet.restart()
    await node.kubelet.until_capacity(GPU, 2)

    await node.kubelet.until(lambda: node.kubelet.registered == [GPU, GPU])
    assert node.status().counts.served == 1


async def test_a_refused_plugin(node: Node) -> None:
    """It tries again, with pauses, says why once, and is registered as soon as the kubelet takes it."""
    await node.kubelet.start()
    node.kubelet.refuses = "not today"
    node.start_plugins("a")
    await node.until_state(State.REFUSED)
    await node.kubelet.until(lambda: node.kubelet.tries >= 4)
    assert node.kubelet.capacity(GPU) == (0, 0)

    node.kubelet.refuses = ""
    await node.kubelet.until_capacity(GPU, 1)

    assert node.said("not today") == 1
    assert (await node.until_state(State.REGISTERED)).counts.refused >= 3
    backoff = Backoff(Times().first_pause_s, Times().longest_pause_s)
    assert max(backoff.pause_s() for _ in range(50)) <= 30


async def test_a_refused_plugin_with_plugins_registry(node: Node) -> None:
    """The kubelet says why, and tries again by itself."""
    node.way = "plugins-registry"
    await node.kubelet.start()
    node.kubelet.refuses = "not today"
    node.start_plugins("a")
    assert (await node.until_state(State.REFUSED)).text == "not today"

    node.kubelet.refuses = ""
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_silent_kubelet(node: Node) -> None:
    """Nothing waits for its answer once it restarts."""
    node.times = replace(QUICK, register_s=3600)
    await node.kubelet.start()
    node.kubelet.answers.clear()
    node.start_plugins("a")
    await node.kubelet.until(lambda: node.kubelet.tries == 1)

    await node.kubelet.stop()
    node.kubelet.answers.set()
    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_kubelet_that_never_asks(node: Node) -> None:
    """A registration without a stream is none: it is repeated, and the state has the reason."""
    node.times = replace(QUICK, stream_s=0.05)
    await node.kubelet.start()
    node.kubelet.manager.follows = False
    node.start_plugins("a")
    assert "has not asked for the devices for 0.05 s" in (await node.until_state(State.REFUSED)).text

    node.kubelet.manager.follows = True
    await node.kubelet.until_capacity(GPU, 1)


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


async def replaced(node: Node, way: Register = "plugins-registry") -> Node:
    """Start another plugin, which takes the place of the first one."""
    other = Node(node.root, way=way)
    other.start_plugins("a", "b")
    await node.kubelet.until_capacity(GPU, 2)
    await node.until_state(State.REPLACED)
    return other


async def test_two_plugins_for_one_resource(node: Node) -> None:
    """The one that was replaced says so, counts it, and leaves the resource to the other until the kubelet restarts."""
    await started(node, "a")
    other = await replaced(node)
    status = node.status()

    assert status.counts.replaced == 1
    assert "another plugin may have registered it; criproxy tries again in 3600 s" in status.text
    assert node.said("the kubelet has ended the stream of the resource") == 1
    await node.kubelet.until(lambda: node.kubelet.registered == [GPU, GPU])
    await other.stop_plugins()
    await node.kubelet.restart()
    await node.kubelet.until_capacity(GPU, 1)


async def gone(other: Node, node: Node) -> None:
    """End the *other* plugin, and return when the kubelet has dropped it.

    A kubelet drops whichever plugin of the resource it has by then when a socket goes from plugins_registry.
    """
    found = node.kubelet.found
    if other.way == "plugins-registry":
        await node.kubelet.until(lambda: GPU in found.values())
    await other.stop_plugins()
    if other.way == "plugins-registry":
        await node.kubelet.until(lambda: GPU not in found.values())


async def test_a_replaced_plugin_tries_again(node: Node) -> None:
    """After a long pause: the other may have been a former process."""
    node.times = replace(QUICK, replaced_pauses_s=(1800.0, 3600.0))
    await started(node, "a")
    await gone(await replaced(node), node)

    skip(1801)
    await node.kubelet.until_capacity(GPU, 1)


WAYS: tuple[Register, Register] = ("kubelet", "plugins-registry")


@pytest.mark.parametrize(("way", "other_way"), [WAYS, WAYS[::-1]])
async def test_a_replaced_plugin_tries_again_when_asked(node: Node, way: Register, other_way: Register) -> None:
    """At once, whatever the pause; until then the resource stays with the other."""
    node.way = way
    await started(node, "a")
    await gone(await replaced(node, other_way), node)

    node.plugins.retry()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_second_process(node: Node) -> None:
    """Says that the socket is taken, leaves the first one alone, and takes over when that ends."""
    await started(node, "a")
    second = Node(node.root)
    second.start_plugins("a", "b")
    status = await second.until_state(State.NO_SOCKET)

    assert "another process is listening on it" in status.text
    assert node.kubelet.capacity(GPU) == (1, 1)
    await node.stop_plugins()
    await node.kubelet.until_capacity(GPU, 2)
    await second.stop_plugins()


async def test_ten_thousand_ids(node: Node) -> None:
    """They come in one message; more than that brings a warning."""
    ids = [f"GPU-{number:08}-1234-1234-1234-123456789abc::{number}" for number in range(10_001)]
    await started(node, *ids)

    assert node.said("the kubelet becomes slow with this many devices") == 1
    assert node.plugin._servicer.left_out == 0


async def test_more_ids_than_a_message_has_room_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet gets as many as fit, and the log says how many it does not get; the stream goes on."""
    monkeypatch.setattr(servicer, "device_list", partial(device_list, largest_bytes=1000))
    await node.kubelet.start()
    node.start_plugins()
    node.plugins.publish(offer(*(f"id-{number:04}" for number in range(100))))
    await node.kubelet.until(lambda: node.kubelet.capacity(GPU)[0] > 0)

    left_out = node.plugin._servicer.left_out

    assert node.kubelet.capacity(GPU)[0] == 100 - left_out
    assert 0 < left_out < 100
    assert node.said("too many devices for a message") == 1
    node.plugins.publish(offer("a"))
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_stop_while_nothing_works(node: Node) -> None:
    """A plugin that waits for the kubelet, or for its folder, ends at once, and leaves nothing behind."""
    node.start_plugins("a")
    await node.until_state(State.NO_SOCKET)
    async with asyncio.timeout(60):
        await node.stop_plugins()

    await started(node, "a")
    await node.stop_plugins()
    assert [each.name for each in node.kubelet.plugins_dir.iterdir() if each != node.kubelet.socket] == []


async def test_nothing_is_offered_after_the_end(node: Node) -> None:
    """What is published then, as when a card recovers at that moment, begins no plugin anew."""
    await started(node, "a")
    await node.plugins.stop()

    node.plugins.publish(offer("a"))

    assert node.plugins.status == []
