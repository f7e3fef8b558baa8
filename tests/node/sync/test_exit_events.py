"""Containers that end by themselves: noticed without a call of the kubelet, whatever the runtime offers for that."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model.workload import ContainerState
from criproxy.node.settings import Settings
from criproxy.node.sync import exit_events
from criproxy.node.sync.drift import Drift
from lab.emulator.runtime import RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.node.world import NO_EVENTS, NO_LOOKS, World, owner, said, sharer

LIMIT_S = 60.0
ONLY_EVENTS = NO_LOOKS
ONLY_LISTS = replace(NO_LOOKS, exit_list_s=0.05)
ONLY_CGROUPS = replace(NO_LOOKS, drift_period_s=0.05)


def no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads cgroups regularly: the first pass comes after a start, at a time of its own."""
    monkeypatch.setattr(Drift, "check", lambda *_: None)


async def streaming(world: World) -> None:
    """Wait until criproxy listens to the runtime."""
    await world.poll(lambda: bool(world.runtime.core.events.listeners))


@pytest.mark.parametrize(
    ("options", "settings", "how"),
    [
        pytest.param(RuntimeOptions(), ONLY_EVENTS, "events", id="events"),
        pytest.param(NO_EVENTS, ONLY_LISTS, "lists", id="lists"),
        pytest.param(NO_EVENTS, ONLY_CGROUPS, "cgroups", id="cgroups"),
    ],
)
async def test_who_ends_by_itself_gives_its_cpus_back(
    tmp_path: Path, options: RuntimeOptions, settings: Settings, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that share get them without any call of the kubelet."""
    monkeypatch.setattr(exit_events, "_SETTLED_S", 3600.0)  # nothing is listed, where a runtime refuses events late
    if how != "cgroups":
        no_pass(monkeypatch)
    async with World(tmp_path, options, settings) as world:
        if how == "events":
            await streaming(world)
        shared, owned = await world.run(sharer("shared")), await world.run(owner("owner", 2))
        assert world.cpus(shared) == "0,3"
        await world.rested()  # else it is a look of the start that finds the end
        assert owned in world.groups()

        world.runtime.exit_container(owned)

        await world.poll(lambda: world.cpus(shared) == "0-3")
        assert world.controller.node.containers[owned].state is ContainerState.EXITED
        assert world.counters.exits == {how: 1}
        assert owned not in world.groups()


async def test_one_that_is_removed_beside_us_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end and its removal come as events, in this order."""
    no_pass(monkeypatch)
    async with World(tmp_path, settings=ONLY_EVENTS) as world:
        await streaming(world)
        owned = await world.run(owner("owner", 2))
        await world.rested()  # else it is a look of the start that finds the end

        await MiniKubelet(world.direct).remove(owned)

        await world.until(lambda: not world.controller.node.containers)
        assert world.counters.exits == {"events": 1}


async def test_the_stream_is_opened_again_after_a_restart_of_the_runtime(tmp_path: Path) -> None:
    """What ended meanwhile is listed, what ends later comes as an event."""
    async with World(tmp_path, settings=ONLY_EVENTS) as world:
        await streaming(world)
        first, second = await world.run(owner("first", 1)), await world.run(owner("second", 1))
        await world.runtime.stop()
        await world.poll(lambda: not world.runtime.core.events.listeners)
        world.runtime.exit_container(first)
        await world.runtime.start()

        await world.until(lambda: world.controller.node.containers[first].state is ContainerState.EXITED)
        await streaming(world)
        world.runtime.exit_container(second)
        await world.until(lambda: world.controller.node.containers[second].state is ContainerState.EXITED)

        assert sum(world.counters.exits.values()) == 2


async def test_events_are_not_taken_away_from_the_kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The containerd of line 1 gives each event to one subscriber only: it is listed there."""
    no_pass(monkeypatch)
    containerd = RuntimeOptions(name="containerd", version="v1.7.22")
    async with World(tmp_path, containerd, ONLY_LISTS) as world:
        owned = await world.run(owner("owner", 1))
        await world.poll(lambda: owned in world.groups())
        await world.rested()  # else it is a look of the start that finds the end

        world.runtime.exit_container(owned)

        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.EXITED)
        assert world.counters.exits == {"lists": 1}
        assert not world.runtime.core.events.listeners


async def test_an_event_that_cannot_be_read_is_no_failure_of_criproxy(tmp_path: Path) -> None:
    """The stream is opened again: what ended meanwhile is listed, and later ends come as events."""
    async with World(tmp_path, settings=ONLY_EVENTS) as world:
        await streaming(world)
        missed, later = await world.run(owner("missed", 1)), await world.at_rest(owner("later", 1))
        event = api.ContainerEventResponse(container_id=missed, container_event_type=api.CONTAINER_STOPPED_EVENT)

        world.runtime.core.events.send(event.SerializeToString()[:-3])
        world.runtime.exit_container(missed)  # the event of this is lost with the stream

        await world.until(lambda: world.controller.node.containers[missed].state is ContainerState.EXITED)
        await streaming(world)
        world.runtime.exit_container(later)
        await world.until(lambda: world.controller.node.containers[later].state is ContainerState.EXITED)
        assert not world.controller.context.failures.recent()
        assert not said(world)
