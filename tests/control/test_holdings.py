"""Who was given which cards, on a node with rules about devices: remembered, counted, and there after a restart."""

from pathlib import Path
from shutil import rmtree

from criproxy.control.holdings import cards_of, has_cards, ids_of, source_of, words_of
from criproxy.cri import api_pb2 as api
from criproxy.devices.builtin import NVIDIA
from criproxy.sim.kubelet import CREATE_TIMEOUT_S
from tests.control.test_guarding import Podresources, create, knows, world
from tests.control.test_hints import node_at, pod_of
from tests.control.world import World


async def remove(node: World, sandbox_id: str) -> None:
    """Remove a pod as the kubelet does."""
    for call, request, reply in (
        ("StopPodSandbox", api.StopPodSandboxRequest, api.StopPodSandboxResponse),
        ("RemovePodSandbox", api.RemovePodSandboxRequest, api.RemovePodSandboxResponse),
    ):
        await node.client.call(call, request(pod_sandbox_id=sandbox_id), reply, CREATE_TIMEOUT_S)


async def test_what_was_given_is_remembered_until_its_pod_is_gone(tmp_path: Path) -> None:
    """Cards with the evidence for them, or that there are none; metrics count cards and not containers."""
    async with world(tmp_path) as node:
        knows(node, Podresources(main="GPU-b"))
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        knows(node, Podresources())
        await create(node, "NVIDIA_VISIBLE_DEVICES=all")
        holdings = node.controller.devices.holdings
        first, second, third = node.controller.node.containers.values()

        held = [holdings.of(container) for container in (first, second, third)]
        assert held[0] == held[1]
        assert held[0] is not None
        assert held[2] is not None
        assert ids_of(held[0], "nvidia") == ["GPU-b"]
        assert source_of(held[0], "nvidia") == "podresources"
        assert words_of(held[2], "nvidia") == ["hidden", "stripped"]
        assert [has_cards(facts or {}, "nvidia") for facts in held] == [True, True, False]
        stock = node.controller.devices.stocks["nvidia"]
        assert list(cards_of(held[0], NVIDIA, stock)) == [stock.cards[1]]
        placing = node.controller.measure()
        assert placing.device_cards == {"nvidia": 2}
        assert placing.device_cards_given == {"nvidia": 1}
        assert placing.device_allocations == {("nvidia", "podresources"): 2}

        await remove(node, first.pod)
        await remove(node, second.pod)
        await node.controller.history("")  # both removals are booked

        assert holdings.of(first) is None
        assert node.controller.measure().device_cards_given == {"nvidia": 0}


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    """From the history, with nobody asked anew."""
    async with world(tmp_path) as node:
        knows(node, Podresources(main="GPU-b"))
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        await node.controller.history("")  # all of it is on disk
        await node.stop_criproxy()
        await node.start_criproxy()
        await node.controller.devices.begin()
        (container,) = node.controller.node.containers.values()

        facts = node.controller.devices.holdings.of(container)

        assert facts is not None
        assert ids_of(facts, "nvidia") == ["GPU-b"]
        assert node.controller.measure().device_cards_given == {"nvidia": 1}


async def test_who_was_found_has_what_the_kubelet_says(tmp_path: Path) -> None:
    """With the state lost, and for containers that others created, the checkpoint tells who was given which."""
    node = node_at(tmp_path)
    async with node.world as world:
        await node.create(pod_of("Burstable", "ours"), "GPU-b")
        await world.stop_criproxy()
        await node.create(pod_of("Burstable", "stranger"), "GPU-a", direct=True)
        rmtree(tmp_path / "state")
        await world.start_criproxy()
        await world.until(lambda: len(world.controller.node.containers) == 2)

        holdings = world.controller.devices.holdings
        found = {each.pod_name: holdings.of(each) or {} for each in world.controller.node.containers.values()}

    assert {name: (ids_of(facts, "nvidia"), source_of(facts, "nvidia")) for name, facts in found.items()} == {
        "ours": (["GPU-b"], "checkpoint"),
        "stranger": (["GPU-a"], "checkpoint"),
    }


async def test_without_rules_nobody_counts_cards(tmp_path: Path) -> None:
    """A node without the section has no metrics of cards."""
    async with world(tmp_path, rules=None) as node:
        placing = node.controller.measure()

        assert placing.device_cards == placing.device_cards_given == {}
        assert placing.device_evidence["podresources", "failed"] == 0
