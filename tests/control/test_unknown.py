"""Calls that end without an answer: the runtime is asked what became of them, and until then nothing is given away."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model.workload import ContainerState
from criproxy.sim.runtime import RuntimeOptions
from tests.control.test_resize import size
from tests.control.world import FAST, World, owner, sharer

LIMIT_S = 20.0
NO_EVENTS = frozenset({"GetContainerEvents"})
SLOW_TO_ASK = replace(FAST, unknown_pause_s=0.3, exit_list_s=60.0, drift_period_s=60.0)


def slow(method: str, seconds: float = 0.2) -> RuntimeOptions:
    """A runtime that takes its time for one method."""
    return RuntimeOptions(latency_s={method: seconds}, missing=NO_EVENTS)


async def cut_after(call: Coroutine[object, object, object], seconds: float) -> None:
    """Cancel *call* while the runtime is at it."""
    task = asyncio.create_task(call)
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def milli(world: World, key: str) -> int:
    """What a container asks for, as criproxy believes."""
    return world.controller.node.containers[key].cpu_milli


async def test_a_cut_resize_that_the_runtime_did_counts(tmp_path: Path) -> None:
    """The new size is in force: it keeps the place for it."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, slow("UpdateContainerResources"), SLOW_TO_ASK) as world:
        owned = await world.run(owner("owner", 1))

        await cut_after(world.kubelet.update(owned, size(2000)), 0.1)

        await world.poll(lambda: world.counters.unknown_outcomes == 1)
        await asyncio.sleep(0.5)
        assert milli(world, owned) == 2000
        await world.poll(lambda: world.cpus(owned) == "1-2")


async def test_a_cut_resize_that_never_reached_the_runtime_is_undone(tmp_path: Path) -> None:
    """Two looks say that the old size is in force; the CPUs that it would have got are free again."""
    latency_s = {"UpdateContainerResources": 60.0}
    options = RuntimeOptions(latency_s=latency_s, missing=NO_EVENTS)
    async with asyncio.timeout(LIMIT_S), World(tmp_path, options, replace(FAST, unknown_pause_s=0.3)) as world:
        owned = await world.run(owner("owner", 1))

        await cut_after(world.kubelet.update(owned, size(2000)), 0.1)
        latency_s.clear()
        assert milli(world, owned) == 2000

        await world.poll(lambda: milli(world, owned) == 1000)
        assert world.owned() == {1}


async def test_a_resize_after_a_cut_one_is_not_undone(tmp_path: Path) -> None:
    """The kubelet tries again with another size: only that one counts."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, slow("UpdateContainerResources"), SLOW_TO_ASK) as world:
        owned = await world.run(owner("owner", 1))
        await cut_after(world.kubelet.update(owned, size(2000)), 0.1)

        await world.kubelet.update(owned, size(3000))

        await asyncio.sleep(0.8)
        assert milli(world, owned) == 3000
        await world.poll(lambda: world.cpus(owned) == "1-3")


async def test_a_cut_stop_is_asked_for(tmp_path: Path) -> None:
    """A container that was stopped all the same gives its place back."""
    options = slow("StopContainer")
    async with asyncio.timeout(LIMIT_S), World(tmp_path, options, replace(FAST, exit_list_s=0.1)) as world:
        owned = await world.run(owner("owner", 1))

        await cut_after(world.kubelet.stop(owned), 0.1)

        await world.poll(lambda: not world.owned())
        assert world.controller.node.containers[owned].state is ContainerState.EXITED


async def test_a_cut_remove_that_was_done_leaves_nothing(tmp_path: Path) -> None:
    """The container had exited before, so its place is free anyway; the resync forgets it."""
    settings = replace(FAST, resync_interval_s=0.3)
    async with asyncio.timeout(LIMIT_S), World(tmp_path, slow("RemoveContainer"), settings) as world:
        owned = await world.run(owner("owner", 1))

        await cut_after(world.kubelet.remove(owned), 0.1)

        await world.poll(lambda: not world.controller.node.containers)


async def test_a_cut_sandbox_stop_is_asked_for_each_container(tmp_path: Path) -> None:
    """All containers of the sandbox have ended."""
    options = slow("StopPodSandbox")
    async with asyncio.timeout(LIMIT_S), World(tmp_path, options, replace(FAST, exit_list_s=0.1)) as world:
        sandbox_id, _ = await world.kubelet.run_pod(owner("owner", 2))
        request = api.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)

        await cut_after(world.client.call("StopPodSandbox", request, api.StopPodSandboxResponse), 0.1)

        await world.poll(lambda: not world.owned())


async def test_a_cut_sandbox_is_known_with_its_first_container(tmp_path: Path) -> None:
    """Its create brings all that there is to know of it."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, slow("RunPodSandbox", 0.1), SLOW_TO_ASK) as world:
        pod = owner("cut", 1)
        await cut_after(world.kubelet.run_sandbox(pod), 0.05)
        await world.poll(lambda: bool(world.runtime.core.records.sandboxes))
        (sandbox_id,) = world.runtime.core.records.sandboxes

        await world.kubelet.create(pod, sandbox_id, pod.containers[0])

        assert world.controller.node.pods[sandbox_id].name == "cut"


async def test_containers_of_an_older_sandbox_keep_their_place_until_it_is_stopped(tmp_path: Path) -> None:
    """A new sandbox attempt of the same pod does not take what the old one's containers own."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        pod = owner("pod", 1)
        first, old = await world.kubelet.run_pod(pod)
        second = await world.kubelet.run_sandbox(pod, attempt=1)
        new = await world.kubelet.create(pod, second, pod.containers[0], attempt=1)
        await world.kubelet.start(new)
        assert (world.cpus(old["main"]), world.cpus(new)) == ("1", "2")

        await world.kubelet.remove_pod(first)

        await world.until(lambda: world.owned() == {2})
        assert world.cpus(new) == "2"


async def test_a_container_that_never_ran_gives_way_to_its_next_attempt(tmp_path: Path) -> None:
    """A created one of an earlier attempt loses its place at once; a running one would keep it."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        pod = owner("pod", 3)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        await world.kubelet.create(pod, sandbox_id, pod.containers[0])

        again = await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
        await world.kubelet.start(again)

        assert world.cpus(again) == "1-3"


async def test_a_cut_start_of_a_sharer_that_runs_is_moved_when_an_owner_comes(tmp_path: Path) -> None:
    """Until the outcome is known it counts as running: the owner's start waits for its CPUs."""
    options = slow("StartContainer", 0.3)
    async with asyncio.timeout(LIMIT_S), World(tmp_path, options, replace(FAST, unknown_pause_s=0.4)) as world:
        pod = sharer("cut")
        shared = await world.kubelet.create(pod, await world.kubelet.run_sandbox(pod), pod.containers[0])
        await cut_after(world.kubelet.start(shared), 0.1)

        owned = await world.run(owner("owner", 2))

        assert world.cpus(owned) == "1-2"
        assert world.cpus(shared) == "0,3"
