"""Stops of containers over their quota meet restarts, failing disks and failing runtimes: none is repeated or lost."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.errors import CriproxyError
from criproxy.model.incident import Use
from criproxy.model.workload import ContainerState
from criproxy.node.bypass import BypassMode
from criproxy.node.devices import stops
from tests.node.devices.quotas import (
    SAID,
    Stopped,
    has_space,
    incidents,
    known,
    node_with_vgpus,
    on_failing_disk,
    pod,
    report,
    restart,
    status,
    why,
    within,
)
from tests.node.record.test_crash_points import Disks
from tests.node.world import World


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    """What the runtime was told to stop; what fails is tried again at once."""
    monkeypatch.setattr(stops, "FIRST_PAUSE_S", 0.01)
    return Stopped().install(monkeypatch)


@pytest.fixture
async def world(tmp_path: Path, stopped: Stopped) -> AsyncIterator[World]:
    """A node with vGPUs."""
    world = node_with_vgpus(tmp_path)
    world.make_store = Disks(tmp_path / "state")
    async with world:
        await world.poll(lambda: world.controller.ready)
        yield world


async def kill(world: World) -> None:
    """End criproxy as SIGKILL does, with what is on its disk."""
    disks = world.make_store
    assert isinstance(disks, Disks)
    await world.kill_criproxy(disks.last.die)


async def run_recorded(world: World) -> str:
    """Run a container of which the disk has also the history, where it says which cards there are."""
    return await world.at_rest(pod("greedy"))


async def report_in_vain(world: World, stopped: Stopped) -> str:
    """Report a container, which the runtime fails to stop; its id."""
    key, stopped.fails = await run_recorded(world), True
    await report(world, key)
    await world.poll(lambda: bool(stopped.calls))
    return key


async def start_again(world: World, stopped: Stopped) -> None:
    """Criproxy is killed and started anew; what it was told before does not count."""
    await kill(world)
    stopped.calls.clear()
    await world.start_criproxy()
    await known(world)


def is_stopped(world: World) -> bool:
    """Whether a container was stopped for its quota."""
    return world.counters.quota_stops["nvidia", "memory"] == 1


async def test_killed_between_report_and_stop(world: World, stopped: Stopped) -> None:
    """What was stored and not done is done after the start; the report that is repeated is the same incident."""
    key = await report_in_vain(world, stopped)
    await start_again(world, stopped)

    answer = await report(world, key, since_s=1700000099.0)
    stopped.fails = False
    await world.poll(lambda: is_stopped(world))

    assert answer == {"stored": True, "act": False, "action": "stop"}
    assert set(stopped.ids) == {key}
    assert why(await status(world, key)) == SAID


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_container_that_may_be_within_its_quota(world: World, stopped: Stopped, *, is_over: bool) -> None:
    """Much may have happened while criproxy was away: a stop waits until the watcher says that it still is right."""
    key = await report_in_vain(world, stopped)
    stopped.fails = False
    await start_again(world, stopped)
    await world.rested()
    assert not stopped.calls
    grants = await DevicePluginCommands(world.controller).commands()["device-grants"]({})
    assert [each["waits"] for each in grants["incidents"]] == [True]

    await (report(world, key) if is_over else within(world, key))
    await world.until(lambda: is_stopped(world) if is_over else not incidents(world))
    await world.rested()
    assert stopped.ids == ([key] if is_over else [])
    assert why(await status(world, key)) == (SAID if is_over else ("", ""))


async def test_a_container_whose_cards_are_not_known_yet(world: World, key: str) -> None:
    """A crash can lose which card a container has: its report is to be repeated until a list has shown it."""
    world.controller.devices.holdings.forget(world.controller.node.containers[key].pod)

    with pytest.raises(CriproxyError, match="does not know yet which cards default/greedy/main has; report it again"):
        await report(world, key)
    assert not incidents(world)

    world.controller.resync.soon()  # those that the start asks for may be over
    await world.poll(lambda: world.controller.devices.holdings.of(world.controller.node.containers[key]) is not None)
    await report(world, key)
    await world.until(lambda: is_stopped(world))


async def test_killed_while_the_container_ends(world: World, stopped: Stopped) -> None:
    """The end that criproxy did not see is that stop: whoever asks first after the start hears why."""
    key = await report_in_vain(world, stopped)
    await kill(world)
    world.runtime.exit_container(key, 143)
    stopped.calls.clear()
    await world.start_criproxy()

    assert why(await status(world, key)) == SAID
    await known(world)
    await world.until(lambda: [*incidents(world)[0].containers.values()] == [Use.STOPPED])
    assert not stopped.calls
    assert (await within(world, key))["ended"] == 0
    assert why(await status(world, key)) == SAID


async def test_within_while_it_is_being_stopped(world: World, key: str, stopped: Stopped) -> None:
    """A container that frees its memory while it ends is no other case: its end is that stop."""
    asked: list[asyncio.Task[Mapping[str, Any]]] = []
    stopped.begun = lambda: asked.append(asyncio.create_task(within(world, key)))
    await report(world, key)
    await world.poll(lambda: bool(asked))
    assert (await asked[0])["stored"]
    await world.poll(lambda: world.controller.node.containers[key].state is ContainerState.EXITED)

    assert why(await status(world, key)) == SAID
    await restart(world)
    assert why(await status(world, key)) == SAID
    assert stopped.ids == [key]


async def test_killed_after_that(world: World, key: str, stopped: Stopped) -> None:
    """What the runtime was at when the container came within its quota is brought to its end after a restart."""
    stopped.holds = True
    await report(world, key)
    await stopped.at_it.wait()
    assert (await within(world, key))["ended"] == 1
    await kill(world)
    stopped.holds = False
    stopped.go_on.set()
    await world.start_criproxy()
    await world.poll(lambda: any(Use.STOPPED in each.containers.values() for each in incidents(world)))

    assert set(stopped.ids) == {key}
    assert why(await status(world, key)) == SAID


async def test_within_while_the_runtime_fails(world: World, stopped: Stopped) -> None:
    """A stop that did not go through is not tried again for a container that is within its quota."""
    key, stopped.fails, stopped.holds = await world.run(pod("greedy")), True, True
    await report(world, key)
    await stopped.at_it.wait()
    assert (await within(world, key))["ended"] == 1
    stopped.go_on.set()
    await world.poll(lambda: not world.controller.incidents._stops._in_flight)
    stopped.fails = False
    stopped.calls.clear()
    await world.until(lambda: not incidents(world))
    await restart(world)
    await world.rested()

    assert not stopped.calls
    assert world.controller.node.containers[key].state is ContainerState.RUNNING
    assert (await report(world, key))["stored"]
    await world.poll(lambda: is_stopped(world))


@pytest.mark.parametrize("comes_within", [False, True])
async def test_bypass_while_the_runtime_fails(world: World, stopped: Stopped, *, comes_within: bool) -> None:
    """A stop that failed is not tried again during the bypass; after it, only if the container is still over."""
    key = await report_in_vain(world, stopped)
    world.controller.bypass(BypassMode.ORDERED)
    await world.poll(lambda: not world.controller.incidents._stops._in_flight)
    stopped.fails = False
    stopped.calls.clear()
    if comes_within:
        await within(world, key)
    await world.rested()
    assert not stopped.calls

    world.controller.bypass(BypassMode.OFF)
    await world.until(lambda: comes_within or is_stopped(world))
    await world.rested()
    assert stopped.ids == ([] if comes_within else [key])
    assert why(await status(world, key)) == (("", "") if comes_within else SAID)


async def test_a_runtime_that_only_says_so(world: World, key: str, stopped: Stopped) -> None:
    """A container that runs on after its stop has not ended: it keeps its vGPU, and is stopped again."""
    stopped.lies = True
    await report(world, key)
    await world.poll(lambda: len(stopped.calls) > 1)
    assert world.controller.node.containers[key].state is ContainerState.RUNNING
    assert not is_stopped(world)

    stopped.lies = False
    await world.poll(lambda: is_stopped(world))
    assert why(await status(world, key)) == SAID


async def test_others_get_the_card_meanwhile(world: World, stopped: Stopped) -> None:
    """A card on which a container is over its quota works: the other vGPUs of it can be had."""
    stopped.fails = True
    await report(world, greedy := await world.run(pod("greedy")))
    other = await world.run(pod("other", 1))

    assert world.controller.node.containers[other].state is ContainerState.RUNNING
    assert set(stopped.ids) <= {greedy}


async def test_a_watcher_that_is_silent(world: World, stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an hour without a word nobody would end the incident: it is given up, and nobody is stopped for it."""
    monkeypatch.setattr("criproxy.node.devices.incidents.CHECK_S", 0.01)
    stopped.fails = True
    key = await world.run(pod("greedy"))
    await report(world, key)
    plugin = world.controller.device_plugin
    plugin.clock = lambda: plugin._seen_s + 3601.0
    await world.until(lambda: not incidents(world))
    stopped.fails = False
    await world.rested()

    assert world.controller.node.containers[key].state is ContainerState.RUNNING
    assert "quota incident dropped" in world.log.events()
    assert "card no longer watched" not in world.log.events()


@pytest.mark.parametrize("action", ["stop", "kill-process", "annotate"])
async def test_a_disk_that_fails(tmp_path: Path, stopped: Stopped, action: str) -> None:
    """What is not on disk is not done, and not remembered either: the report that is repeated is the first one."""
    async with on_failing_disk(tmp_path) as (world, store):
        key = await world.at_rest(pod("greedy"))
        store.full = True
        with pytest.raises(CriproxyError, match="it could not be stored, so criproxy does nothing"):
            await report(world, key, action)
        assert not incidents(world)
        assert not world.controller.incidents.edits
        assert not stopped.calls

        await has_space(world, store)
        answer = await report(world, key, action)
        assert answer == {"stored": True, "act": action == "kill-process", "action": action}
        if action == "stop":
            await world.poll(lambda: is_stopped(world))
        assert stopped.ids == ([key] if action == "stop" else [])


async def test_an_end_that_is_not_stored(tmp_path: Path, stopped: Stopped) -> None:
    """It is reported again: until then the incident goes on, and a restart does not make it another one."""
    async with on_failing_disk(tmp_path) as (world, store):
        key = await world.run(pod("greedy"))
        await report(world, key, "observe")
        await world.rested()
        store.full = True
        with pytest.raises(CriproxyError, match="not be stored"):
            await within(world, key)
        assert [each.ended for each in incidents(world)] == [False]

        await has_space(world, store)
        assert (await within(world, key))["ended"] == 1
        await world.until(lambda: not incidents(world))


async def test_without_an_incident_no_reply_is_decoded(world: World) -> None:
    """Replies are edited only as long as a container has one that its status shows."""
    key, paths = await world.run(pod("greedy")), "/runtime.v1.RuntimeService/ContainerStatus"
    assert paths not in world.controller.table()
    await report(world, key, "observe")
    assert paths not in world.controller.table()
    await within(world, key)
    await report(world, key, "annotate")
    assert paths in world.controller.table()
    await within(world, key)
    await world.until(lambda: not incidents(world))
    assert paths not in world.controller.table()
