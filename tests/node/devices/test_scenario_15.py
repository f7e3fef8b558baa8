"""Scenario 15 of the devices: a container over its quota of memory is stopped once, and everybody sees why."""

import asyncio

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.node.devices import stops
from tests.node.devices.quotas import SAID, Stopped, direct, incidents, pod, restart, status, watcher, why
from tests.node.world import World


async def test_over_quota(world: World, stopped: Stopped) -> None:
    """9000 MiB of 8192 and a margin of 512, for more than 5 s: one StopContainer with a timeout of ten seconds."""
    sandbox, ids = await world.kubelet.run_pod(pod("greedy"))
    sibling = await world.run(pod("sibling", 1))
    greedy, watching = ids["main"], watcher(world)
    ended = asyncio.create_task(_first_end(world))
    await world.poll(lambda: world.runtime.core.events.listeners == 2)  # criproxy's own is one of them

    for at_s in range(6):
        await watching.read(at_s, greedy=9000, sibling=7000)
    assert not stopped.calls
    assert not world.controller.incidents.edits
    await watching.read(6, greedy=9000, sibling=7000)
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 1)
    for at_s in range(7, 20):
        await watching.read(at_s, sibling=7000)

    assert stopped.calls == [(greedy, 10)]
    assert why(await status(world, greedy)) == SAID
    assert await ended == SAID
    of_pod = await world.client.pod_sandbox_status(sandbox)
    assert [why(each) for each in of_pod.containers_statuses] == [SAID] * len(of_pod.containers_statuses)
    assert await status(world, sibling) == await direct(world, sibling)
    assert not watching.kills


async def _first_end(world: World) -> tuple[str, str]:
    async for event in world.client.container_events():
        for each in event.containers_statuses:
            if each.state == api.CONTAINER_EXITED:
                return why(each)
    return "", ""


async def test_restarts_do_not_repeat_it(world: World, stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a restart of the watcher nor one of criproxy, at whatever reading, stops a container a second time."""
    monkeypatch.setattr(stops, "FIRST_PAUSE_S", 3600.0)  # what failed is not tried again, however long readings take
    stopped.fails = True  # so that the container runs on
    key, watching = await world.run(pod("greedy")), watcher(world)
    for at_s in range(8):
        await watching.read(at_s, greedy=9000)
    await world.poll(lambda: len(stopped.calls) == 1)
    watching.restart()
    for at_s in range(100, 120):
        await watching.read(at_s, greedy=9000)
    assert len(incidents(world)) == 1

    stopped.fails = False
    await restart(world)
    for at_s in range(120, 140):
        await watching.read(at_s, greedy=9000)
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 1)
    await restart(world)
    watching.restart()
    for at_s in range(200, 220):
        await watching.read(at_s)

    assert set(stopped.ids) == {key}
    assert len(stopped.calls) == 2
    assert why(await status(world, key)) == SAID
    assert world.counters.quota_incidents == {}


async def test_the_next_container_has_its_own_incident(world: World, stopped: Stopped) -> None:
    """A container that the kubelet restarts may use its quota; if it is over it again, it is stopped, too."""
    spec = pod("greedy")
    sandbox, ids = await world.kubelet.run_pod(spec)
    watching = watcher(world)
    for at_s in range(8):
        await watching.read(at_s, greedy=9000)
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 1)
    again = await world.kubelet.create(spec, sandbox, spec.containers[0], attempt=1)
    await world.kubelet.start(again)

    for at_s in range(10, 30):
        await watching.read(at_s, greedy=8000)
    assert stopped.ids == [ids["main"]]
    for at_s in range(30, 40):
        await watching.read(at_s, greedy=9000)
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 2)

    assert stopped.ids == [ids["main"], again]
    assert why(await status(world, again)) == SAID
