"""Unhealthy cards that the device plugin reports: their containers are told of or stopped, and replies say why."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.errors import CriproxyError, StatusCode, UsageError
from criproxy.model.incident import Use
from criproxy.model.record import Kind
from criproxy.model.workload import ContainerState
from criproxy.node.devices import incidents
from criproxy.store.store import Store
from lab.kubelet.kubelet import PodSpec
from tests.devices.fixture import ALI
from tests.node.devices.quotas import Stopped, direct, has_space, on_failing_disk, restart, status, why
from tests.node.devices.test_guard import host
from tests.node.devices.test_joined import allocated
from tests.node.world import FAST, World, refusal, said

GPU = "nvidia.com/gpu"
LOST = {"device_class": "nvidia", "card": "GPU-a", "since_s": 1700000000.5, "reason": "XID 79"}
SAID = ("DeviceUnhealthy", "XID 79; GPU-a")


@pytest.fixture
async def world(tmp_path: Path, stopped: Stopped) -> AsyncIterator[World]:
    """A node with two cards."""
    host(tmp_path)
    settings = replace(FAST, devices=DeviceRules(classes=(NVIDIA, ALI)))
    async with World(tmp_path, settings=settings) as world:
        await world.poll(lambda: world.controller.ready)
        yield world


async def report(world: World, action: str, **other: object) -> Mapping[str, Any]:
    """The device plugin reports the card as unhealthy."""
    return await DevicePluginCommands(world.controller).incident({**LOST, "action": action, **other})


async def healthy(world: World) -> Mapping[str, Any]:
    """The device plugin reports the card as healthy again."""
    return await DevicePluginCommands(world.controller).incident({**LOST, "healthy": True})


def gpu(name: str, *ids: str) -> PodSpec:
    """A pod with cards."""
    return allocated(name, GPU, *ids)


async def test_containers_of_the_card_are_stopped(world: World, stopped: Stopped) -> None:
    """Each container that has a replica of the card is stopped once, and its status says why; no other one is."""
    first, second = await world.run(gpu("one", "GPU-a::0")), await world.run(gpu("two", "GPU-b::0", "GPU-a::1"))
    other = await world.run(gpu("other", "GPU-b::1"))

    answer = await report(world, "stop")
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 2)

    assert {each["id"]: each["use"] for each in answer["containers"]} == {first: "stopping", second: "stopping"}
    assert sorted(stopped.calls) == sorted([(first, 10), (second, 10)])
    assert [why(await status(world, key)) for key in (first, second)] == [SAID, SAID]
    assert world.controller.node.containers[first].state is ContainerState.EXITED
    assert await status(world, other) == await direct(world, other)
    records = await world.controller.context.state.find_history("default/one/main")
    sentences = [text for record in records if record.kind is Kind.UNHEALTHY for text in record.sentences]
    assert sentences == [
        "nvidia: card is unhealthy: XID 79; GPU-a",
        "criproxy has stopped it: XID 79; GPU-a (onUnhealthy: stop)",
    ]


async def test_stops_are_not_repeated(world: World, stopped: Stopped) -> None:
    """Neither a repeated report nor a restart of criproxy stops a container again; its status goes on saying why."""
    key = await world.run(gpu("one", "GPU-a"))
    await report(world, "stop")
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)

    await report(world, "stop")
    await restart(world)
    await report(world, "stop")
    await world.rested()

    assert stopped.ids == [key]
    assert why(await status(world, key)) == SAID
    assert world.counters.device_incidents == {}
    await refusal(world.run(gpu("two", "GPU-a")), "its card GPU-a")


async def test_stops_are_not_repeated_after_the_state_is_lost(world: World, stopped: Stopped, tmp_path: Path) -> None:
    """The incident comes back with the next inventory; a container that was stopped for it is not stopped again."""
    key = await world.run(gpu("one", "GPU-a"))
    await report(world, "stop")
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)
    await world.stop_criproxy()
    world.make_store = lambda: Store(tmp_path / "new state")
    await world.start_criproxy()
    await world.poll(lambda: world.controller.ready and world.controller.devices._begun)
    assert world.controller.node.incidents == {}
    later = await world.run(gpu("two", "GPU-a"))  # nobody knows yet

    card = {"id": "GPU-a", "healthy": False, "action": "stop", **{each: LOST[each] for each in LOST if each != "card"}}
    inventory = {"resources": [{"name": GPU, "device_class": "nvidia"}], "cards": [card]}
    for _ in range(2):
        await DevicePluginCommands(world.controller).inventory(inventory)
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)
    await world.rested()

    assert stopped.ids == [key, later]
    await refusal(world.run(gpu("three", "GPU-a")), "its card GPU-a")


async def test_who_comes_back_is_not_created(world: World, stopped: Stopped) -> None:
    """A container that is restarted has the same card: it is not created before the card is healthy again."""
    pod = gpu("one", "GPU-a::0")
    sandbox_id, ids = await world.kubelet.run_pod(pod)
    await report(world, "stop")
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)

    for _ in range(2):
        with pytest.raises(RuntimeCallError, match="container default/one/main is refused") as error:
            await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
        assert error.value.code is StatusCode.FAILED_PRECONDITION
        assert (
            "its card GPU-a (nvidia) has been unhealthy since 2023-11-14T22:13:20.500Z (XID 79); criproxy creates it "
            "once "
            "the card is healthy again (onUnhealthy: stop)"
        ) in str(error.value)
    assert world.counters.device_creates_refused["nvidia"] == 2
    assert list(world.controller.node.containers) == [ids["main"]]
    await world.run(gpu("other", "GPU-b"))

    await healthy(world)
    again = await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
    await world.kubelet.start(again)
    assert stopped.ids == [ids["main"]]
    assert world.controller.node.containers[again].state is ContainerState.RUNNING


async def test_who_was_created_before_is_stopped(world: World, stopped: Stopped) -> None:
    """A container that was created before the card failed, and starts after that, is stopped once it runs."""
    _, key = await world.created(gpu("one", "GPU-a"))
    await report(world, "stop")
    assert not stopped.calls

    await world.kubelet.start(key)
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)
    assert stopped.ids == [key]
    assert why(await status(world, key)) == SAID


async def test_a_device_plugin_that_was_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the device plugin has been silent for an hour, its incidents are over: nobody else would end them."""
    monkeypatch.setattr(incidents, "CHECK_S", 0.001)
    now_s = [0.0]
    world.controller.device_plugin.clock = lambda: now_s[0]
    await report(world, "stop")
    await refusal(world.run(gpu("one", "GPU-a")), "its card GPU-a")

    now_s[0] = 3601.0
    await world.until(lambda: not world.controller.node.incidents)
    assert "card no longer watched" in str(world.log.lines)
    key = await world.run(gpu("two", "GPU-a"))
    assert world.controller.node.containers[key].state is ContainerState.RUNNING


async def test_end_of_an_incident(world: World, stopped: Stopped) -> None:
    """A card that is healthy again stops nobody; what was stopped says why until it is removed."""
    key = await world.run(gpu("one", "GPU-a"))
    await report(world, "stop")
    await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)

    assert await healthy(world) == {"stored": True, "ended": 1}
    later = await world.run(gpu("later", "GPU-a"))
    assert why(await status(world, key)) == SAID
    await world.kubelet.remove(key)
    await world.until(lambda: not world.controller.node.incidents)

    assert stopped.ids == [key]
    assert world.controller.node.containers[later].state is ContainerState.RUNNING
    assert not world.controller.incidents.edits
    assert await healthy(world) == {"stored": True, "ended": 0}


async def test_containers_are_told_of(world: World, stopped: Stopped) -> None:
    """With annotate, the status of containers that use the card has an annotation as long as it is unhealthy."""
    key, other = await world.run(gpu("one", "GPU-a::0")), await world.run(gpu("other", "GPU-b"))
    before = await status(world, key)
    await report(world, "annotate")

    after = await status(world, key)
    assert after.annotations["devices.criproxy.io/unhealthy"] == "XID 79; GPU-a"
    del after.annotations["devices.criproxy.io/unhealthy"]
    assert after == before
    assert "devices.criproxy.io/unhealthy" not in (await status(world, other)).annotations
    later = await world.run(gpu("later", "GPU-a::1"))
    await world.until(lambda: len(next(iter(world.controller.node.incidents.values())).containers) == 2)
    assert "devices.criproxy.io/unhealthy" in (await status(world, later)).annotations

    await healthy(world)
    assert await status(world, key) == before
    assert not stopped.calls


async def test_nothing_is_done(world: World, stopped: Stopped) -> None:
    """With none, it is only known: status --check names the card and who uses it."""
    key = await world.run(gpu("one", "GPU-a::0"))
    before = await status(world, key)
    await report(world, "none")

    (text,) = said(world, "GPU-a")
    assert text == (
        "nvidia: card GPU-a has been unhealthy since 2023-11-14T22:13:20.500Z (XID 79), and is used by default/one/main"
    )
    assert await status(world, key) == before
    assert not world.controller.incidents.edits
    await world.run(gpu("two", "GPU-a::1"))  # with annotate, too: see above
    await healthy(world)
    assert not said(world, "GPU-a")
    assert not stopped.calls


async def test_cards_of_which_nothing_is_known(world: World) -> None:
    """A class that the rules do not have, and a card that nobody has, have no containers."""
    await world.run(gpu("one", "GPU-a"))

    assert (await report(world, "stop", device_class="other"))["containers"] == []
    assert (await report(world, "stop", card="GPU-z"))["containers"] == []


NONE: list[tuple[Mapping[str, Any], str]] = [
    ({}, "device_class is missing"),
    ({"device_class": "nvidia", "card": ""}, "must name a card"),
    ({**LOST, "since_s": "now"}, "since_s must be of the kind float"),
    ({**LOST, "since_s": -1}, "must be seconds since the epoch"),
    ({**LOST, "since_s": float("nan")}, "must be seconds since the epoch"),
    ({**LOST, "action": ["stop"]}, "must be one of none, annotate, stop"),
    ({**LOST, "reason": ["XID"]}, "reason must be of the kind str"),
]


async def test_reports_that_are_none(world: World) -> None:
    """They are refused with what is wrong, and nothing is remembered."""
    for arguments, sentence in NONE:
        with pytest.raises(UsageError, match=sentence):
            await DevicePluginCommands(world.controller).incident(arguments)
        assert not world.controller.node.incidents


async def test_reports_are_bounded(world: World) -> None:
    """Texts are cut, and only so many cards can be unhealthy at one time."""
    long = await report(world, "none", reason="x" * 10_000)
    assert long["stored"]
    assert len(next(iter(world.controller.node.incidents.values())).reason) < 600
    for number in range(255):
        await report(world, "none", card=f"GPU-{number}")
    with pytest.raises(CriproxyError, match="256 cards are already unhealthy"):
        await report(world, "none", card="GPU-more")


async def test_a_disk_that_fails(tmp_path: Path, stopped: Stopped) -> None:
    """What is not on disk is not done: the report fails, and its repetition acts."""
    async with on_failing_disk(tmp_path) as (world, store):
        key = await world.at_rest(gpu("one", "GPU-a"))
        store.full = True
        with pytest.raises(CriproxyError, match="it could not be stored, so criproxy does nothing"):
            await report(world, "stop")
        assert not stopped.calls
        (waits,) = said(world, "unhealthy")
        assert waits.endswith("used by default/one/main; criproxy stops them when it can store that")

        await has_space(world, store)
        await report(world, "stop")
        await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)
        assert stopped.ids == [key]
        (incident,) = world.controller.node.incidents.values()
        assert list(incident.containers.values()) == [Use.STOPPED]
