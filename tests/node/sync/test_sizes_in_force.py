"""Resizes that passed unseen during an ordered bypass: the sizes in force are asked for when it is over."""

import asyncio
import gc
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.views.status import summary
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.node.bypass import BypassMode
from criproxy.node.cgroups import AT_ONCE
from criproxy.node.sync.sizes_in_force import follow_sizes
from lab.emulator.runtime import RuntimeOptions
from tests.node.reconcile.test_promotion import wrong
from tests.node.test_bypassed_calls import Fragile, Placing
from tests.node.test_kept import again, kept
from tests.node.test_pod_level import resize_pod
from tests.node.world import FAST, KEEPING, NO_EVENTS, NO_LOOKS, Slow, World, owner, sharer, situation


def asked_for(cpus: int) -> api.LinuxContainerResources:
    """What the kubelet sends for a Guaranteed container of so many CPUs."""
    return api.LinuxContainerResources(cpu_shares=1024 * cpus, cpu_quota=100_000 * cpus, cpu_period=100_000)


async def resized_unseen(world: Placing, container_id: str, cpus: int) -> None:
    """The kubelet resizes a container while every call passes."""
    world.bypass.set(BypassMode.ORDERED, "for the test")
    await world.client.update_container_resources(container_id, asked_for(cpus))
    world.bypass.set(BypassMode.OFF, "again")


async def test_a_container_that_grew_unseen_gets_its_cpus(tmp_path: Path) -> None:
    """It is placed anew, with the sizes that the runtime tells."""
    async with Placing(tmp_path) as world:
        grown = await world.run(owner("grown", 1))
        await resized_unseen(world, grown, 2)
        await world.poll(lambda: len(world.owned()) == 2)
        await world.poll(lambda: world.cpus(grown) == "1-2" and world.controller.ready)
        assert world.controller.node.containers[grown].cpu_milli == 2000
        await world.poll(lambda: world.controller.ready and not wrong(world))


async def test_a_container_that_shrank_while_the_runtime_could_not_ask(tmp_path: Path) -> None:
    """As a plugin without a connection: its CPU is free as soon as there is one again."""
    async with World(tmp_path, NO_EVENTS, replace(NO_LOOKS, moves_created=False)) as world:
        shrunk = await world.run(owner("shrunk", 2))
        await world.controller.resync.again()
        await world.direct.update_container_resources(shrunk, asked_for(1))

        world.controller.runtime_lost()

        await world.until(lambda: world.controller.node.containers[shrunk].cpu_milli == 1000)
        assert len(world.owned()) == 1


async def test_a_resize_that_the_runtime_is_at_is_not_taken_back(tmp_path: Path, slow: Slow) -> None:
    """The runtime still reports the size before it."""
    settings = replace(NO_LOOKS, moves_created=False)
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), settings) as world:
        grown = await world.at_rest(owner("grown", 1))
        slow.hold("UpdateContainerResources")
        resize = asyncio.create_task(world.client.update_container_resources(grown, asked_for(2)))
        await slow.asked.wait()
        assert world.controller.node.containers[grown].cpu_milli == 2000

        world.controller.runtime_lost()
        await world.controller.resync.again()
        assert world.controller.node.containers[grown].cpu_milli == 2000
        slow.let_go("UpdateContainerResources")
        await resize

        await world.poll(lambda: world.cpus(grown) == "1-2")


async def test_a_refused_resize_that_passed_unseen_is_waited_for(tmp_path: Path) -> None:
    """The kubelet repeated it during the bypass and asks no more: its silence takes nothing back."""
    async with Placing(tmp_path) as world:
        grown = await world.run(owner("grown", 1))
        other = await world.run(owner("other", 2))
        with pytest.raises(RuntimeCallError, match="asks for 2 exclusive CPUs"):
            await world.client.update_container_resources(grown, asked_for(2))
        await resized_unseen(world, grown, 2)
        await world.until(lambda: (d := world.controller.node.containers[grown].desired) is not None and d.told)
        await world.poll(lambda: world.controller.ready)
        (sentence,) = wrong(world)
        assert "default/grown/main should have 2 CPUs" in sentence
        await world.kubelet.stop_sandbox(world.controller.node.containers[other].pod)
        await world.poll(lambda: len(world.owned()) == 2)
        await world.poll(lambda: world.controller.ready and not wrong(world))


class Keeps(Placing):
    """The same under a policy that leaves a pod the CPUs of its containers that end."""

    def __init__(self, directory: Path) -> None:
        self.fragile = Fragile(KEEPING.options)
        World.__init__(self, directory, None, FAST, self.fragile)


async def test_a_pod_that_grew_unseen_keeps_all_its_cpus(tmp_path: Path) -> None:
    """The total from before the bypass caps nothing any more; the next create tells the one that is true now."""
    async with Keeps(tmp_path) as world:
        small, grown = owner("grown", 1), owner("grown", 2)
        sandbox, ids = await world.kubelet.run_pod(small)
        world.bypass.set(BypassMode.ORDERED, "for the test")
        await resize_pod(world, sandbox, 2000)
        await world.client.update_container_resources(ids["main"], asked_for(2))
        world.bypass.set(BypassMode.OFF, "again")
        await world.poll(lambda: len(world.owned()) == 2 and world.controller.ready)
        await world.rested()
        world.runtime.exit_container(ids["main"])
        await world.controller.outcomes.release_exited()  # as a list tells
        assert kept(world, small) == "1-2"

        main = await again(world, grown, sandbox, 1)
        assert world.cpus(main) == "1-2"
        assert world.controller.node.pods[sandbox].cpu_total_milli == 2000


async def test_a_container_that_grew_unseen_without_room_is_told_of(tmp_path: Path) -> None:
    """The kubelet believes that it has the size: it gets it when there is room."""
    async with Placing(tmp_path) as world:
        grown = await world.run(owner("grown", 1))
        other = await world.run(owner("other", 2))
        await resized_unseen(world, grown, 2)
        await world.poll(lambda: world.controller.ready and bool(wrong(world)))
        (sentence,) = wrong(world)
        assert "should have 2 CPUs and 1 GiB, but has had a place for only 1 CPU and 1 GiB since 20" in sentence
        assert "the runtime already applies the new size" in sentence
        assert "grows when there is room" in sentence
        assert "came back" not in sentence
        assert [refusal["text"] for refusal in summary(situation(world.controller))["refusals"]] == [sentence]
        await world.kubelet.stop_sandbox(world.controller.node.containers[other].pod)
        await world.poll(lambda: len(world.owned()) == 2)
        await world.poll(lambda: world.controller.ready and not wrong(world))


class Counted(dict[str, float]):
    """Latencies by method; says when so many statuses have been asked for, while these are slow."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left, self.asked = 2 * count - 1, asyncio.Event()  # the runtime looks twice for each

    def get(self, method: str, default: float = 0.0) -> float:  # type: ignore[override]  # narrower than that of a dict
        """The latency of *method*."""
        if method == "ContainerStatus" and method in self:
            self.left -= 1
            if not self.left:
                self.asked.set()
        return super().get(method, default)


async def test_a_resize_during_another_bypass_while_sizes_are_asked_for_is_seen(tmp_path: Path) -> None:
    """Its container had been asked already."""
    slow = Counted(AT_ONCE + 1)
    async with Placing(tmp_path, options=RuntimeOptions(latency_s=slow)) as world:
        grown = await world.run(owner("grown", 1))
        for number in range(AT_ONCE):
            await world.run(sharer(f"other-{number}"))
        await world.rested()
        slow["ContainerStatus"] = 0.3
        world.bypass.set(BypassMode.ORDERED, "for the test")
        world.bypass.set(BypassMode.OFF, "again")
        await slow.asked.wait()

        await resized_unseen(world, grown, 2)
        slow.clear()

        await world.poll(lambda: world.cpus(grown) == "1-2")


async def test_a_size_that_cannot_be_asked_for_is_asked_for_again(tmp_path: Path) -> None:
    """Nobody waits for it meanwhile."""
    async with Placing(tmp_path) as world:
        grown = await world.at_rest(owner("grown", 1))
        world.runtime.lose_status(grown)
        await resized_unseen(world, grown, 2)
        await world.run(sharer("other"))

        world.runtime.lose_status(grown, "")
        world.controller.runtime_lost()

        await world.poll(lambda: world.cpus(grown) == "1-2")


async def test_a_container_that_nobody_resized_is_left_as_it_is(tmp_path: Path) -> None:
    """No decision is made about it."""
    async with Placing(tmp_path) as world:
        same = await world.run(owner("same", 2))
        await world.booked()
        before = world.controller.node.containers[same]
        world.bypass.set(BypassMode.ORDERED, "for the test")
        world.bypass.set(BypassMode.OFF, "again")
        await world.poll(lambda: world.controller.ready)
        assert world.controller.node.containers[same] == before
        await world.poll(lambda: world.controller.ready and not wrong(world))


async def test_a_comparison_that_is_cancelled_before_its_questions_begin_leaves_none_behind(world: World) -> None:
    """As by the end of criproxy; Python warns of a call that was made and never awaited."""
    await world.run(sharer("shared"))
    items = await world.direct.list_containers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what an earlier test has left behind is no matter of this one
        gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparing = asyncio.create_task(follow_sizes(world.controller.context, items, lambda *_: False))
        await asyncio.sleep(0)
        comparing.cancel()
        await asyncio.wait([comparing])
        gc.collect()

    assert comparing.cancelled()
    assert [text for each in caught if "never awaited" in (text := str(each.message))] == []
