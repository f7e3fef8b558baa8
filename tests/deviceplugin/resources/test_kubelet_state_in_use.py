"""Ids and resources that are gone while containers have them, and what is not known of them yet."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from asyncinotify import Inotify

from criproxy.deviceplugin.resources.kubelet_state import FolderWatch
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.state import State, Times
from tests.allocations import Allocated
from tests.clocks import skip
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.news import PATIENT_S, poll, running
from tests.deviceplugin.node import GPU, QUICK, Node, offer, started

SHARED = f"{GPU}.shared"
WEB = Pod("uid-1", "web")


async def learn(node: Node, offered: Mapping[str, Resource]) -> None:
    """Start the plugin, which asks what is in use before it offers anything."""
    node.start_plugins()
    await node.plugins.learn()
    node.plugins.publish(offered)


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


async def test_nothing_is_known_of_ids_in_use(node: Node) -> None:
    """Where the kubelet does not say which are, those that are gone stay listed; it is said once."""
    await started(node, "a", "b")
    await node.kubelet.podresources.stop()
    node.plugins.publish(offer("b"))
    await node.log.until(lambda: node.said("does not report which devices are in use") == 1)
    asked = node.answers
    await node.log.until(lambda: node.answers > asked + 1)
    await node.kubelet.until_capacity(GPU, 2, healthy=1)
    assert node.status().held == 1

    await node.kubelet.podresources.start()
    await node.kubelet.until_capacity(GPU, 1)

    assert node.said("does not report which devices are in use") == 1


async def test_a_kubelet_that_answers_elsewhere(node: Node) -> None:
    """Another socket of the kubelet's is asked from the next question on; without one, none is."""
    await started(node, "a", "b")
    assert node.ask is not None
    answers, node.ask.socket = node.ask.socket, node.root / "nowhere.sock"
    node.plugins.publish(offer("b"))
    await node.log.until(lambda: node.said("does not report which devices are in use") == 1)
    assert node.status().held == 1

    node.ask.socket = None
    asked = node.answers
    await node.log.until(lambda: node.answers > asked + 1)
    assert node.status().held == 1

    node.ask.socket = answers
    await node.kubelet.until_capacity(GPU, 1)
    assert node.said("does not report which devices are in use") == 1


async def test_a_resource_that_is_offered_no_more(node: Node) -> None:
    """Its ids in use stay listed; when they are free it has no devices, and then no socket. It registers once."""
    await started(node, "a", "b", preference=lambda available, required, size: available[:size])
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish({})
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 0)
    await node.log.until(lambda: node.said("no longer offered") == 1)

    assert node.plugins.status == []
    assert node.kubelet.registered == [GPU]


async def test_a_former_resource_of_ours_that_containers_have(node: Node) -> None:
    """After a start with another file, what containers have under its name is listed; other plugins' never is."""
    await started(node, "a")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()

    node.is_ours = lambda name: name == GPU
    node.start_plugins()
    node.plugins.publish(offer("a::0", "a::1", name=f"{GPU}.shared"))
    await node.kubelet.until(lambda: node.kubelet.registered.count(GPU) == 2)
    await node.kubelet.until(lambda: node.kubelet.lists(GPU) > 0)  # what the kubelet had of the last plugin is the same
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 0)


async def test_a_kubelet_that_comes_after_the_plugin(node: Node) -> None:
    """No id is healthy before it has said which cards containers have; then those are that are free."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()
    await node.kubelet.stop()
    await learn(node, offer("a::0", "a::1", "b::0", "b::1", name=SHARED))
    status = await node.until_state(State.NO_KUBELET, SHARED)
    assert (status.devices, status.healthy) == (4, 0)

    node.kubelet.podresources.answers.clear()
    await node.kubelet.start()
    await node.kubelet.until_capacity(SHARED, 4, healthy=0)
    node.kubelet.podresources.answers.set()
    await node.kubelet.until_capacity(SHARED, 4, healthy=2)

    assert node.kubelet.healthy(SHARED) == {"b::0", "b::1"}


async def test_a_kubelet_that_does_not_say_what_is_in_use(node: Node) -> None:
    """Without podresources it has all ids after a while, and so it has where a question gets no answer."""
    node.times = replace(QUICK, learn_s=0.01, first_answer_s=0.1)
    await node.kubelet.start()
    await node.kubelet.podresources.stop()
    await learn(node, offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2)

    await node.stop_plugins()
    await node.kubelet.podresources.start()
    node.kubelet.podresources.answers.clear()
    await learn(node, offer("c", "d", "e"))
    await node.kubelet.until_capacity(GPU, 3)


async def test_a_kubelet_that_ends_before_it_says_what_is_in_use(node: Node) -> None:
    """The next one has its time to say it."""
    node.times = replace(QUICK, learn_s=0.01, first_answer_s=3600)
    node.kubelet.podresources.answers.clear()
    await node.kubelet.start()
    await learn(node, offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=0)
    await node.kubelet.stop()
    await node.until_state(State.NO_KUBELET)
    skip(3601)
    await asyncio.sleep(0.1)  # nothing tells that the limit did nothing
    assert node.status().healthy == 0
    asked = node.answers

    node.kubelet.podresources.answers.set()
    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 2)

    assert node.answers > asked


async def test_a_change_while_the_kubelet_is_asked(node: Node) -> None:
    """It is asked twice after that: it may have given an id just before it got the list without it."""
    kubelet = node.kubelet.podresources
    kubelet.answers.clear()
    await started(node, "a", "b")

    async def until_asked(times: int) -> None:
        await poll(lambda: kubelet.asked["List"] >= times)

    def answer() -> None:
        kubelet.answers.set()  # those who wait for it now, and no later ones
        kubelet.answers.clear()

    await until_asked(1)
    answer()
    await until_asked(2)
    node.plugins.publish(offer("b"))
    answer()
    await until_asked(3)
    answer()
    await node.kubelet.until_capacity(GPU, 1)
    kubelet.entries = [Allocated(pod="web", pod_uid="uid-1", resource=GPU, ids=("a",))]
    kubelet.answers.set()

    await node.kubelet.until_capacity(GPU, 2, healthy=1)


@pytest.mark.parametrize(
    ("events", "times"),
    [
        pytest.param(True, Times(poll_s=3600, beside_events_s=3600), id="events"),
        pytest.param(True, Times(poll_s=3600, beside_events_s=0.01), id="looks beside events"),
        pytest.param(False, Times(poll_s=0.01, beside_events_s=3600), id="looks without events"),
    ],
)
async def test_changes(tmp_path: Path, events: bool, times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way notices the start, and a file that comes after it."""

    def none_left(self: Inotify, *_: object) -> None:
        raise OSError(24, "Too many open files")

    if not events:
        monkeypatch.setattr(Inotify, "__init__", none_left)
        monkeypatch.setattr(Inotify, "__del__", lambda _: None, raising=False)
    news: asyncio.Queue[bool] = asyncio.Queue()
    file = tmp_path / "file"
    watch = FolderWatch(tmp_path, lambda: news.put_nowait(file.exists()), times)
    async with running(watch.run()):
        async with asyncio.timeout(PATIENT_S):
            assert not await news.get()
            file.write_text("")
            while not await news.get():
                pass
