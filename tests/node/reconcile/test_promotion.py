"""A Guaranteed container that shares although it should be exclusive is noticed, and placed when there is room."""

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.views.explain import instances, to_values
from criproxy.api.views.status import summary
from criproxy.node.bypass import BypassMode
from criproxy.node.settings import OnError, Promote
from criproxy.placement.answers.choice import choice_now
from lab.emulator.runtime import RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.disks import fill, free
from tests.node.record.test_disk import QUICK, back
from tests.node.test_bypassed_calls import Placing
from tests.node.world import FAST, STATIC, Slow, World, metric, owner, problems, sharer, situation

OFF = replace(QUICK, promote=Promote.OFF)


def wrong(world: World) -> list[str]:
    """What ``status --check`` says is wrong, but for a release, and for failures that are over."""
    found = problems(situation(world.controller))["problems"]
    return [text for text in found if not text.startswith(("criproxy failed at ", "the node is released"))]


def notices(world: World) -> list[str]:
    """What ``status`` notes without calling it wrong."""
    return [each["text"] for each in summary(situation(world.controller))["notices"] if not each["wrong"]]


async def explained(world: World, container_id: str) -> str:
    """Everything that ``explain`` says of a container, as one text."""
    records = await world.controller.context.state.find_history(container_id)
    (life,) = instances(world.controller.node, records, container_id)
    now = choice_now(world.controller.node, world.controller.context.state.policy, container_id)
    return str(to_values(situation(world.controller), life, [], [], now))


async def created_on_a_full_disk(world: World, disk: Path, cpus: int = 2) -> str:
    """A Guaranteed container that comes while the state cannot be written; the disk is well again afterwards."""
    fill(disk)
    container_id = await world.run(owner("late", cpus))
    await world.until(lambda: container_id in world.controller.node.grants)
    free(disk)
    await back(world)
    return container_id


async def test_until_then_status_and_check_say_that_it_shares(tmp_path: Path, disk: Path) -> None:
    """One sentence, with the number of CPUs and since when; the metric counts it; explain gives the true cause."""
    async with World(tmp_path, settings=OFF) as world:
        late = await created_on_a_full_disk(world, disk)
        (sentence,) = wrong(world)
        assert re.match(
            r"default/late/main should have 2 exclusive CPUs, but has had shared CPUs since "
            r"20\d\d-.*: criproxy was failing",
            sentence,
        )
        assert metric(world.controller, "unpromoted_containers") == 1
        text = await explained(world, late)
        assert "somebody else" not in text
        assert "should_own_cpus': 2" in text
        assert "criproxy was failing when the container was created" in text
        assert "'decision': 'now'" not in text


async def test_it_waits_for_room(tmp_path: Path, disk: Path) -> None:
    """Whoever has CPUs keeps them; they are taken when that one goes."""
    async with World(tmp_path, settings=OFF) as world:
        late = await created_on_a_full_disk(world, disk)
        first = await world.run(owner("first", 2))
        await world.stop_criproxy()
        world.use(STATIC, promote=Promote.DEFAULT)
        await world.start_known()
        assert (world.cpus(first), world.cpus(late)) == ("1-2", "0,3")
        assert len(wrong(world)) == 1
        await world.kubelet.stop(first)
        await world.poll(lambda: world.cpus(late) == "1-2")
        await world.poll(lambda: world.controller.ready and not wrong(world))


@pytest.mark.parametrize("way", [OnError.SHARED, OnError.PASS])
async def test_whatever_becomes_of_creates_that_we_failed_at(tmp_path: Path, disk: Path, way: OnError) -> None:
    """Shared or as the kubelet sent it."""
    async with World(tmp_path, settings=replace(QUICK, on_error=way)) as world:
        late = await created_on_a_full_disk(world, disk)
        await world.poll(lambda: world.cpus(late) == "1-2")
        await world.poll(lambda: world.controller.ready and not wrong(world))
        assert world.counters.promotions == 1


async def test_what_came_during_the_automatic_bypass_is_placed_after_it(tmp_path: Path) -> None:
    """While it is on, that is said; nobody is moved."""
    async with Placing(tmp_path) as world:
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        late = await world.run(owner("late", 2))
        (sentence,) = wrong(world)
        assert re.match(
            r"default/late/main should have 2 exclusive CPUs, but has had shared CPUs since .*: it was created during",
            sentence,
        )
        world.bypass.set(BypassMode.OFF, "mended")
        await world.poll(lambda: world.cpus(late) == "1-2")
        await world.poll(lambda: world.controller.ready and not wrong(world))
        assert "somebody else" not in await explained(world, late)


async def test_what_was_held_when_the_automatic_bypass_began_is_placed_after_it(tmp_path: Path, slow: Slow) -> None:
    """The policy had no room for it, and was not asked again: it shares, and that is remembered."""
    async with Placing(tmp_path, options=RuntimeOptions(latency_s=slow)) as world:
        there = await world.run(owner("there", 2))
        pod = owner("late", 2)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        await world.until(lambda: sandbox_id in world.controller.node.pods)
        slow["ListContainers"] = 0.2
        slow.asked.clear()
        creating = asyncio.create_task(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        await slow.asked.wait()
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        late = await creating
        await world.kubelet.start(late)
        (sentence,) = wrong(world)
        assert "default/late/main should have 2 exclusive CPUs, but has had shared CPUs since" in sentence
        world.bypass.set(BypassMode.OFF, "mended")
        await world.kubelet.stop(there)
        await world.poll(lambda: world.cpus(late) in {"1-2", "2-3"})
        await world.poll(lambda: world.controller.ready and not wrong(world))


async def test_what_came_during_an_ordered_bypass_is_placed_after_it(tmp_path: Path) -> None:
    """Criproxy has seen nothing of it, and knows it by its time."""
    no_lists = replace(FAST, unknown_pause_s=3600.0, exit_list_s=3600.0)  # they show it during the bypass, too
    async with Placing(tmp_path, no_lists) as world:
        await world.poll(lambda: world.controller.ready)
        world.bypass.set(BypassMode.ORDERED, "for the test")
        late = await world.run(owner("late", 2))
        assert late not in world.controller.node.containers
        world.bypass.set(BypassMode.OFF, "mended")
        await world.poll(lambda: world.cpus(late) == "1-2")
        await world.poll(lambda: world.controller.ready and not wrong(world))
        text = await explained(world, late)
        assert "somebody else" not in text
        assert "during a bypass" in text


async def test_nobody_is_placed_or_moved_during_an_ordered_bypass(tmp_path: Path) -> None:
    """Lists show what came; who has a place stays on its CPUs, until the bypass is over."""
    async with Placing(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        shared = await world.run(sharer("shared"))
        world.bypass.set(BypassMode.ORDERED, "for the test")
        late = await world.run(owner("late", 2))
        await world.controller.resync.again()
        assert late in world.controller.node.containers
        sent = world.counters.updates_sent

        for _ in range(5):  # a promotion is worked out in a thread
            await world.controller.resync.again()
            await world.rested()
        assert (world.cpus(shared), world.cpus(late)) == ("0-3", "0-3")
        assert not world.owned()
        assert world.counters.updates_sent == sent

        world.bypass.set(BypassMode.OFF, "mended")
        await world.poll(lambda: (world.cpus(shared), world.cpus(late)) == ("0,3", "1-2"))
        await world.poll(lambda: world.controller.ready and not wrong(world))


async def found_running(world: World) -> str:
    """A Guaranteed container of two CPUs that ran before criproxy came to the node."""
    await world.stop_criproxy()
    shutil.rmtree(world._directory / "state")
    _, ids = await MiniKubelet(world.direct).run_pod(owner("found", 2))
    await world.start_criproxy()
    await world.until(lambda: ids["main"] in world.controller.node.grants)
    return ids["main"]


async def test_who_was_there_before_is_only_a_notice(world: World) -> None:
    """It is left as it was found, and ``--check`` is content."""
    await found_running(world)
    await world.poll(lambda: world.controller.ready and not wrong(world))
    (notice,) = notices(world)
    assert notice.startswith(
        "default/found/main should have 2 exclusive CPUs, but has shared CPUs: criproxy found it running"
    )
    assert world.owned() == frozenset()


async def test_who_was_there_before_is_placed_where_that_is_asked_for(tmp_path: Path) -> None:
    """With ``promote: when-free``."""
    wanted = replace(FAST, promote=Promote.WHEN_FREE)
    async with World(tmp_path, settings=wanted) as world:
        found = await found_running(world)
        await world.poll(lambda: world.cpus(found) == "1-2")
        await world.poll(lambda: notices(world) == [])


async def test_a_released_node_owes_nobody_anything(tmp_path: Path) -> None:
    """Nothing is promoted until that is over."""
    async with Placing(tmp_path) as world:
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        late = await world.run(owner("late", 2))
        await world.controller.policy_switch.release("for the test")
        world.bypass.set(BypassMode.OFF, "mended")
        await world.controller.context.state.settled()
        assert not [text for text in wrong(world) if "exclusive CPU" in text]
        await world.controller.policy_switch.undo()
        await world.poll(lambda: world.cpus(late) == "1-2")
