"""Who was given which cards, on a node with rules about devices: remembered, counted, and there after a restart."""

from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import KubeletFiles
from criproxy.devices.evidence.evidence import Allocation, Given, Share, Subject
from criproxy.devices.holdings import (
    MOST_CHARACTERS,
    MOST_IDS,
    allocated_of,
    cards_of,
    facts_of,
    ids_of,
    source_of,
    words_of,
)
from criproxy.node.devices.kubelet import Kubelet
from criproxy.wire.calls import Outcome, OutcomeKind
from lab.kubelet.kubelet import MiniKubelet
from tests.node.devices.test_guard import RULES, Podresources, create, knows, world
from tests.node.devices.test_hints import node_at, pod_of
from tests.node.world import metric, refusal


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
        assert [bool(source_of(facts or {}, "nvidia")) for facts in held] == [True, True, False]
        stock = node.controller.devices.stocks["nvidia"]
        assert list(cards_of(held[0], NVIDIA, stock)) == [stock.cards[1]]
        assert metric(node.controller, "device_cards") == {"nvidia": 2}
        assert metric(node.controller, "device_cards_given") == {"nvidia": 1}
        assert metric(node.controller, "device_allocations") == {("nvidia", "podresources"): 2}

        await node.kubelet.remove_pod(first.pod)
        await node.kubelet.remove_pod(second.pod)
        await node.controller.context.state.find_history("")  # both removals are booked

        assert holdings.of(first) is None
        assert metric(node.controller, "device_cards_given") == {"nvidia": 0}


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
        assert metric(node.controller, "device_cards") == metric(node.controller, "device_cards_given") == {}


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.NOT_SENT, OutcomeKind.UNKNOWN])
async def test_a_removal_that_fails_takes_nobodys_card(tmp_path: Path, kind: OutcomeKind) -> None:
    """The container runs on with its card, and everybody knows."""
    async with world(tmp_path) as node:
        knows(node, Podresources(main="GPU-b"))
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        (container,) = node.controller.node.containers.values()
        message = api.RemovePodSandboxRequest(pod_sandbox_id=container.pod)

        node.controller.handlers.sandbox_removed(message, Outcome(kind))

        assert node.controller.devices.holdings.of(container) is not None
        assert metric(node.controller, "device_cards_given") == {"nvidia": 1}


async def test_pods_whose_end_came_by_a_list_are_forgotten(tmp_path: Path) -> None:
    """Also those that never got a container; nothing of them is kept."""
    async with world(tmp_path, rules=replace(RULES, privileged="deny")) as node:
        guard = node.controller.devices
        guard.evidence.source = source = Kubelet(
            KubeletFiles(checkpoint="/none"), tmp_path, node.counters, node.log, node.controller.context.tasks
        )
        await create(node)
        await refusal(create(node, privileged=True))
        sandboxes = set(node.runtime.core.records.sandboxes)
        assert guard.sandboxes() == set(source._inquiries) == sandboxes
        for sandbox_id in sandboxes:
            await MiniKubelet(node.direct).remove_pod(sandbox_id)

        await node.controller.resync.again()

        assert not guard.sandboxes()
        assert not source._inquiries
        assert not guard.holdings._found
        assert not guard._runtimes


@pytest.mark.parametrize("holder", ["holdings", "runtimes", "looks"])
async def test_whoever_alone_holds_a_pod_forgets_it(tmp_path: Path, holder: str) -> None:
    """What is kept of a pod by only one of those who keep something is found, too."""
    async with world(tmp_path) as node:
        guard = node.controller.devices
        guard.evidence.source = source = Kubelet(
            KubeletFiles(checkpoint="/none"), tmp_path, node.counters, node.log, node.controller.context.tasks
        )
        gone = Subject(sandbox_id="gone", pod_uid="uid", namespace="shop", pod="web")
        match holder:
            case "holdings":
                guard.holdings.note(gone.sandbox_id, "main", {"nvidia_source": "checkpoint"})
            case "runtimes":
                guard._runtimes[gone.sandbox_id] = "runc"
            case _:
                await source.prefetch(gone)
        assert guard.sandboxes() == {gone.sandbox_id}

        await node.controller.resync.again()

        assert not guard.sandboxes()
        assert not source._inquiries
        assert not guard.holdings._found
        assert not guard._runtimes


def test_what_is_remembered_of_ids_is_bounded() -> None:
    """A device plugin may name as many as it likes, however long; none is longer than programs can find cards by."""
    ids = tuple(f"GPU-{number}-{'x' * 5000}" for number in range(5000))
    facts = facts_of((), {"nvidia": Allocation(Given.CARDS, ids, "annotation")}, (), {})

    found = ids_of(facts, "nvidia")
    assert len(found) == MOST_IDS
    assert max(map(len, found)) == MOST_CHARACTERS


def test_many_replicas_are_counted() -> None:
    """Their number is kept beside those that are: `criproxy devices` and the metrics say how many a container has."""
    replicas = tuple(f"GPU-a::{number}" for number in range(700))
    share = Share("nvidia.com/gpu", replicas, "annotation")
    facts = facts_of((), {"nvidia": Allocation(Given.CARDS, ("GPU-a",), "annotation", shares=(share,))}, (), {})

    (found,) = allocated_of(facts, "nvidia")
    assert (len(found["ids"]), found["count"]) == (MOST_IDS, 700)
    assert [each["count"] for each in allocated_of({"nvidia_allocated": {"a.b/c": {"ids": "x,y"}}}, "nvidia")] == [2]
