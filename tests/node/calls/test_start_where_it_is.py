"""Where no container can be moved before it runs, as with NRI: it starts where it was created, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import StatusCode
from criproxy.node.sync import ends
from lab.emulator.runtime import RuntimeOptions
from tests.node.world import CALL_S, FAST, NO_EVENTS, NO_LOOKS, Slow, World, owner, refusal, sharer

LOCKED = replace(FAST, moves_created=False)
ALL, FREE = "0-3", "0,2-3"


@pytest.fixture
async def world(tmp_path: Path, slow: Slow) -> AsyncIterator[World]:
    """A node on which only what runs is moved."""
    async with World(tmp_path, RuntimeOptions(latency_s=slow), LOCKED) as world:
        yield world


async def test_it_starts_before_whoever_has_its_cpus(world: World, slow: Slow) -> None:
    """And moves as soon as it runs; until then, the owner's start waits."""
    _, shared = await world.created(sharer("shared"))
    _, owned = await world.created(owner("owner"))
    slow.hold("UpdateContainerResources")
    await world.kubelet.start(shared)
    assert world.cpus(shared) == ALL, "nothing was sent before"

    in_force = world.controller.context.in_force
    in_force.settings = replace(in_force.settings, barrier_timeout_s=0.05)
    said = await refusal(world.kubelet.start(owned), "cannot start on CPU 1 yet: after 0.05 s .* by default/shared")
    assert said.code is StatusCode.UNAVAILABLE
    slow.let_go("UpdateContainerResources")
    await world.poll(lambda: world.cpus(shared) == FREE)
    await world.kubelet.start(owned)

    assert world.cpus(owned) == "1"


@pytest.mark.parametrize("is_answered", [True, False], ids=["owner-runs", "owner-is-being-started"])
async def test_it_does_not_start_beside_an_owner(world: World, slow: Slow, *, is_answered: bool) -> None:
    """It is refused at once: no update can come before its start, and the next attempt is created elsewhere."""
    sandbox, shared = await world.created(sharer("shared"))
    _, owned = await world.created(owner("owner"))
    if not is_answered:
        slow.hold("StartContainer")
    starting = asyncio.create_task(world.kubelet.start(owned))
    await (starting if is_answered else slow.asked.wait())

    await refusal(world.kubelet.start(shared), "default/shared/main was created before .* used by default/owner/main")
    if not is_answered:
        slow.let_go("StartContainer")
        await starting
    again = await world.kubelet.create(sharer("shared"), sandbox, sharer("shared").containers[0], attempt=1)
    await world.kubelet.start(again)
    assert (world.cpus(again), world.cpus(owned)) == (FREE, "1")
    assert world.counters.updates_sent == 0


async def test_an_unknown_one_waits_for_no_update_of_another(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NRI, the runtime ends no update before it has the answer about the start.

    So the comparison that finds the unknown one waits for another that has ended, and has an update in flight, no
    longer than a start waits for anything.
    """
    monkeypatch.setattr(ends, "LOCK_S", 10 * CALL_S)
    settings = replace(NO_LOOKS, moves_created=False, barrier_timeout_s=0.05)
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), settings) as world:
        moved = await world.run(sharer("moved"))
        slow.hold("UpdateContainerResources")
        await world.created(owner("owner"))
        await slow.asked.wait()
        world.runtime.exit_container(moved)
        world.kubelet._client = world.direct
        _, past = await world.created(sharer("past"))
        world.kubelet._client = world.client

        await world.kubelet.start(past)

        assert past in world.controller.node.containers
        assert world.controller.context.locks.busy(moved), "its update is still in flight"
        slow.let_go("UpdateContainerResources")
