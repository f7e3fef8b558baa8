"""A call of the kubelet that hangs in the runtime holds up nobody but its own container."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from criproxy.model.workload import ContainerState
from criproxy.node.bypass import HANGS, BypassMode
from criproxy.node.cgroups import Cgroups
from criproxy.node.sync import ends
from lab.emulator.runtime import RuntimeOptions
from tests.node.calls.test_update import size
from tests.node.sync.test_drift import change
from tests.node.test_bypassed_calls import Placing
from tests.node.world import FAST, GIB, Slow, World, owner, refusal, sharer

LIMIT_S = 60.0
NO_EVENTS = frozenset({"GetContainerEvents"})
HANGS_S = 60.0


def listing(slow: Slow) -> RuntimeOptions:
    """A runtime that sends no events."""
    return RuntimeOptions(latency_s=slow, missing=NO_EVENTS)


@asynccontextmanager
async def hanging(slow: Slow, method: str, call: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Let the *call* of *method* hang in the runtime."""
    slow[method] = HANGS_S
    slow.asked.clear()
    task = asyncio.create_task(call)
    await slow.asked.wait()
    yield
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("comes", [True, False], ids=["a-create-without-room-has-it", "lists-are-read"])
async def test_ends_of_others_are_seen_beside_a_hanging_update(tmp_path: Path, comes: bool) -> None:
    """Two containers have ended, and an update of one of them hangs: the place of the other one is free."""
    slow, settings = Slow(), replace(FAST, exit_list_s=3600.0 if comes else 0.1, drift_period_s=3600.0)
    async with World(tmp_path, listing(slow), settings) as world:
        busy, other = await world.run(owner("busy")), await world.at_rest(owner("other"))
        async with hanging(slow, "UpdateContainerResources", world.kubelet.update(busy, size(1000, 2 * GIB))):
            world.runtime.exit_container(busy)
            world.runtime.exit_container(other)
            if comes:
                await world.run(owner("next", 2))

            await world.until(lambda: world.controller.node.containers[other].state is ContainerState.EXITED)


async def test_updates_of_others_go_on(tmp_path: Path, slow: Slow) -> None:
    """However many wait for the end of such calls: there are only so many at once."""
    settings = replace(FAST, concurrent_updates=1, drift_period_s=0.05)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), settings) as world:
        owned = await world.run(owner("owned"))
        await world.poll(lambda: world.groups() == {owned})
        _, starting = await world.created(sharer("starting"))
        async with hanging(slow, "StartContainer", world.kubelet.start(starting)):
            await world.created(owner("coming"))
            await world.poll(lambda: world.controller.context.locks._users.get(starting) == 2)

            await change(world, owned, "0-3")

            await world.poll(lambda: world.cpus(owned) == "1")


async def test_calls_beside_an_update_that_hangs_are_no_failures_of_ours(tmp_path: Path) -> None:
    """Each is refused with the name of the container and of what hangs, and the node is placed as before."""
    slow, settings = Slow(), replace(FAST, barrier_timeout_s=0.1, handler_timeout_s=10.0)
    async with Placing(tmp_path, settings, RuntimeOptions(latency_s=slow)) as world:
        _, busy = await world.created(owner("busy"))
        await world.rested()
        said = "default/busy/main cannot {} yet: .* the kubelet's UpdateContainerResources is still in"
        async with hanging(slow, "UpdateContainerResources", world.kubelet.update(busy, size(1000, 2 * GIB))):
            caught = [await refusal(world.kubelet.start(busy), said.format("start"))]
            for _ in range(HANGS):
                again = world.kubelet.update(busy, size(1000, 3 * GIB))
                caught.append(await refusal(again, said.format("be resized")))

        assert {error.code for error in caught} == {StatusCode.UNAVAILABLE}
        assert world.bypass.mode is BypassMode.OFF
        assert not world.controller.context.failures.counts
        assert not world.counters.fallbacks
        assert world.counters.refusals == {"UNAVAILABLE": HANGS + 1}


async def test_a_start_has_one_limit_for_all_its_waits(tmp_path: Path) -> None:
    """One that waited for the lock of its container has no more than what is left for those who then block it."""
    slow, settings = Slow(), replace(FAST, barrier_timeout_s=2.0, drift_period_s=0.05)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), settings) as world:
        shared, pod, context = await world.run(sharer("shared")), owner("starting"), world.controller.context
        starting = await world.kubelet.create(pod, await world.kubelet.run_sandbox(pod), pod.containers[0])
        await world.poll(lambda: world.cpus(shared) == "0,2-3" and shared in world.groups())
        await world.rested()
        async with context.locks.of(starting, "the test"):
            start = asyncio.create_task(world.kubelet.start(starting))
            await world.poll(lambda: context.locks._users[starting] == 2)
            slow["UpdateContainerResources"] = HANGS_S
            # Beside the runtime's own call, which would hang: criproxy's update that mends it must hang, too.
            container = world.runtime.core.records.container(shared)
            container.cpuset = world.runtime.core.machine.cpuset("0-3", "0")
            world.runtime.core.write_cgroup(container)
            await world.poll(lambda: bool(world.controller.reconciler.blockers(starting)))
            context.in_force.settings = replace(context.settings, barrier_timeout_s=LIMIT_S)

        await refusal(start, "default/starting/main cannot start")


async def test_ends_are_judged_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A create without room waits as long as for one container, however many are busy."""
    monkeypatch.setattr(ends, "LOCK_S", 10 * LIMIT_S)
    settings = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0, resync_interval_s=600.0)
    async with World(tmp_path, listing(Slow()), settings) as world:
        context = world.controller.context
        busy, other = await world.run(owner("busy")), await world.at_rest(owner("other"))
        async with context.locks.of(busy, "the test"):
            world.runtime.exit_container(busy)
            world.runtime.exit_container(other)
            judging = asyncio.create_task(world.controller.outcomes.release_exited())

            await world.until(lambda: context.state.node.containers[other].state is ContainerState.EXITED)

            assert not judging.done()
        await judging
        assert context.state.node.containers[busy].state is ContainerState.EXITED


async def test_one_that_cannot_be_asked_about_hides_no_other_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question fails for one container and ends the judgement only after the others were judged."""
    ask = Cgroups.ask

    async def away(cgroups: Cgroups, key: str) -> object:
        if key == first:
            raise RuntimeCallError("ContainerStatus", StatusCode.UNAVAILABLE, "planted")
        return await ask(cgroups, key)

    settings = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0, resync_interval_s=600.0)
    async with World(tmp_path, listing(Slow()), settings) as world:
        first, other = await world.run(owner("first")), await world.at_rest(owner("other"))
        world.runtime.exit_container(first)
        world.runtime.exit_container(other)
        monkeypatch.setattr(Cgroups, "ask", away)

        await world.controller.outcomes.release_exited()

        containers = world.controller.node.containers
        assert containers[other].state is ContainerState.EXITED
        assert containers[first].state is ContainerState.RUNNING
        assert "cannot ask which containers have exited" in world.log.events()
