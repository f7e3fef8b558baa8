"""Cards of containers at whose create nobody looked: they are found out later, and nobody calls such a card idle."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from criproxy.devices.classes.builtin import ASCEND, NVIDIA
from criproxy.devices.classes.cards import Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.holdings import EVERY_CLASS, ids_of, words_of
from criproxy.host.cards import find_cards
from criproxy.model.workload import Container
from criproxy.node.devices import evidence as scanning
from criproxy.node.devices import guard as guarding
from tests.allocations import Allocated
from tests.gates import Gate
from tests.node.devices.test_guard import create, world
from tests.node.devices.test_hints import AWARE, GPU, RULES, node_at, pod_of
from tests.node.world import World


def holders(node: World) -> dict[str, list[str]]:
    """The ids of NVIDIA's cards by pod, as far as somebody knows."""
    holdings = node.controller.devices.holdings
    return {
        each.pod_name: ids_of(facts, "nvidia")
        for each in node.controller.node.containers.values()
        if (facts := holdings.of(each)) is not None
    }


@pytest.mark.parametrize("by", ["restart", "reload"])
async def test_the_section_comes_while_pods_with_cards_run(tmp_path: Path, by: str) -> None:
    """Who has which card is known then, and who has one without a node is moved by nobody."""
    node = node_at(tmp_path)
    node.world.use(AWARE, devices=None)
    async with node.world as running:
        bare, _ = await node.create(pod_of("Burstable", "bare"), "GPU-b")
        noded, _ = await node.create(pod_of("Burstable", "noded"), "GPU-a", devices=("/dev/nvidia0",))
        plain, _ = await node.create(pod_of("Burstable", "plain"))
        for key in (bare, noded, plain):
            await running.kubelet.start(key)
        if by == "restart":
            await running.stop_criproxy()
            running.use(AWARE, devices=RULES)
            await running.start_criproxy()
        else:
            settings = replace(running.controller.context.settings, devices=RULES, configuration="with")
            await running.controller.policy_switch.change(AWARE, settings)

        await running.poll(lambda: len(holders(running)) == 3)
        await running.poll(lambda: "bare" not in node.grants())

        assert holders(running) == {"bare": ["GPU-b"], "noded": ["GPU-a"], "plain": []}
        assert {name: each.stays for name, each in by_pod(running).items()} == {
            "bare": True,
            "noded": False,
            "plain": False,
        }
        assert node.grants().keys() == {"noded", "plain"}
        assert running.controller.node.watched_cpus >= running.controller.node.applied[bare].cpus - {0}


def by_pod(node: World) -> dict[str, Container]:
    """The containers."""
    return {each.pod_name: each for each in node.controller.node.containers.values()}


async def test_who_came_while_the_rule_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next comparison with the runtime finds out what it was given."""
    node = node_at(tmp_path)
    node.world.use(AWARE, unknown_pause_s=3600.0)  # it comes when the test asks for it
    async with node.world as running:
        with monkeypatch.context() as broken:
            broken.setattr(guarding, "boundary", lambda *_: 1 // 0)
            await node.create(pod_of("Burstable", "gpu"), "GPU-b", devices=("/dev/nvidia1",))
        assert holders(running) == {"gpu": []}

        running.controller.runtime_lost()

        await running.poll(lambda: holders(running) == {"gpu": ["GPU-b"]})
        (facts,) = (running.controller.devices.holdings.of(each) for each in by_pod(running).values())
        assert words_of(facts or {}, EVERY_CLASS) == ["failed"]


@pytest.mark.parametrize(("privileged", "word"), [(True, "privileged"), (False, "exempt")])
async def test_exceptions_are_told_of_after_a_lost_state(tmp_path: Path, privileged: bool, word: str) -> None:
    """What the runtime tells of a container says that it may see more, and why."""
    rules = RULES if privileged else replace(RULES, exempt_namespaces=("default",))
    async with world(tmp_path, rules=rules) as node:
        await create(node, "NVIDIA_VISIBLE_DEVICES=all", privileged=privileged)
        await node.stop_criproxy()
        rmtree(tmp_path / "state")
        await node.start_criproxy()
        await node.until(lambda: len(node.controller.node.containers) == 1)
        (container,) = node.controller.node.containers.values()

        await node.poll(lambda: node.controller.devices.holdings.of(container) is not None)

        assert words_of(node.controller.devices.holdings.of(container) or {}, EVERY_CLASS) == [word]


async def test_what_the_history_knows_is_not_asked_for_again(tmp_path: Path) -> None:
    """After a restart the findings of a create are there, with nobody asked anew."""
    node = node_at(tmp_path)
    async with node.world as running:
        await node.create(pod_of("Burstable", "gpu"), "GPU-b")
        await running.controller.context.state.find_history("")
        node.kubelet.entries = [Allocated(pod="gpu", pod_uid="x", resource=GPU, ids=("GPU-a",))]
        await running.stop_criproxy()
        await running.start_criproxy()

        await running.poll(lambda: bool(holders(running)))

        (facts,) = (running.controller.devices.holdings.of(each) for each in by_pod(running).values())
        assert "allocated" in words_of(facts or {}, "nvidia")


async def test_a_scan_for_others_is_not_taken_for_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around a reload, one with the classes before is under way when the first create with the new ones comes."""
    began, goes_on, loop = asyncio.Event(), Gate(), asyncio.get_running_loop()

    def held(classes: Iterable[DeviceClass], *args: Any) -> dict[str, Stock]:  # noqa: ANN401 (those of `find_cards`)
        loop.call_soon_threadsafe(began.set)
        goes_on.wait()
        return find_cards(classes, *args)

    async with world(tmp_path) as node:
        await node.controller.devices.begin()
        cards = node.controller.devices.cards
        monkeypatch.setattr(scanning, "find_cards", held)
        before = asyncio.create_task(cards.scan((ASCEND,)))
        await began.wait()
        after = asyncio.create_task(cards.scan((NVIDIA,)))
        loop.call_soon(goes_on.set)
        await asyncio.gather(before, after)

        assert cards.scanned == (NVIDIA,)
        assert list(cards.found) == ["nvidia"]
