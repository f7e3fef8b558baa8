"""Asking what became of a container: once for each, however often it is wanted, and nobody waits for it."""

import asyncio
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model.workload import ContainerState
from criproxy.node.sync import outcomes
from criproxy.node.sync.outcomes import LONGEST_PAUSE_S, Outcomes
from criproxy.placement.events import ContainerCreating
from lab.emulator.runtime import RuntimeOptions
from tests.node.calls.test_update import size
from tests.node.sync.test_exit_events import ONLY_EVENTS, streaming
from tests.node.world import FAST, NO_EVENTS, Slow, World, cut, owner

LIMIT_S = 60.0
QUIET = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0)


def asking(key: str) -> int:
    """How many tasks ask for a container."""
    return sum(task.get_name() == f"ask for {key}" for task in asyncio.all_tasks())


def fails(world: World, times: float = inf) -> asyncio.Event:
    """Let questions for states fail so many times; the event that this returns says that one has."""
    cgroups, failed = world.controller.context.cgroups, asyncio.Event()
    original, left = cgroups.ask, [times]

    async def ask(key: str) -> object:
        left[0] -= 1
        if left[0] < 0:
            return await original(key)
        failed.set()
        raise ValueError("no status")

    cgroups.ask = ask  # type: ignore[method-assign, assignment]
    return failed


async def test_a_container_is_asked_for_once_at_a_time(tmp_path: Path, slow: Slow) -> None:
    """Two hundred calls about one container that did not end it are one task, which ends with the runtime's answer."""
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), QUIET) as world:
        owned = await world.at_rest(owner("owner", 1))
        slow["ContainerStatus"] = 60.0
        inquiry = world.controller.outcomes

        for _ in range(200):
            inquiry.ask(owned)

        await slow.asked.wait()
        assert asking(owned) == 1
        assert world.controller.node.exclusive_cpus == {1}


async def test_who_is_not_told_of_again_and_again_is_asked_for_less_often(tmp_path: Path) -> None:
    """The pauses between two questions grow, up to a bound."""
    async with World(tmp_path, NO_EVENTS, QUIET) as world:
        owned = await world.at_rest(owner("owner", 1))
        inquiry, pauses_s = world.controller.outcomes, list[float]()
        enough, timeout = asyncio.Event(), asyncio.timeout

        fails(world)

        def noted(pause_s: float) -> asyncio.Timeout:
            if (task := asyncio.current_task()) is None or task.get_name() != f"ask for {owned}":
                return timeout(pause_s)
            pauses_s.append(pause_s)
            if len(pauses_s) == 20:
                enough.set()
            return timeout(0 if len(pauses_s) < 20 else pause_s)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "timeout", noted)
            inquiry.ask(owned)
            await enough.wait()

        assert pauses_s == sorted(pauses_s)
        assert pauses_s[-1] == LONGEST_PAUSE_S


async def test_what_happens_during_a_pause_ends_it(tmp_path: Path) -> None:
    """However long criproxy would have waited because the runtime did not answer before."""
    patient = replace(QUIET, unknown_pause_s=1000 * LIMIT_S)
    async with World(tmp_path, NO_EVENTS, patient) as world:
        owned = await world.at_rest(owner("owner", 1))
        inquiry, failed = world.controller.outcomes, fails(world, 1)
        inquiry.ask(owned)
        await failed.wait()
        world.runtime.exit_container(owned)

        inquiry.ask(owned)

        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.EXITED)
        await world.poll(lambda: not asking(owned))


async def test_what_happens_while_it_is_asked_for_is_asked_for_again(tmp_path: Path) -> None:
    """An answer from before the last call says nothing of what came of that."""
    async with World(tmp_path, NO_EVENTS, QUIET) as world:
        owned = await world.at_rest(owner("owner", 1))
        inquiry = world.controller.outcomes
        questions, original = list[str](), inquiry.context.cgroups.ask

        async def ask(key: str) -> object:
            answer = await original(key)
            questions.append(key)
            if len(questions) == 1:
                world.runtime.exit_container(owned)
                inquiry.ask(owned)  # a second call ends while the first answer is on its way
            return answer

        inquiry.context.cgroups.ask = ask  # type: ignore[method-assign, assignment]
        inquiry.ask(owned)

        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.EXITED)
        await world.poll(lambda: not asking(owned))
        assert questions.count(owned) >= 2


@pytest.mark.parametrize("resized", [False, True])
async def test_nobody_asks_for_a_container_that_is_gone(tmp_path: Path, *, resized: bool) -> None:
    """A runtime that never answers is not asked for ever about what was removed long ago, nor about its size."""
    slow = Slow(UpdateContainerResources=60.0)
    options = replace(NO_EVENTS, latency_s=slow)
    async with World(tmp_path, options, QUIET) as world:
        sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 1))
        await world.rested()
        failed = fails(world)
        if resized:
            await cut(world.kubelet.update(ids["main"], size(2000)), slow)
            slow.clear()
        else:
            world.controller.outcomes.ask(ids["main"])
        await failed.wait()
        assert asking(ids["main"]) == 1

        await world.kubelet.stop(ids["main"])
        await world.kubelet.remove_pod(sandbox_id)

        await world.poll(lambda: not asking(ids["main"]))


async def test_one_container_that_cannot_be_asked_for_holds_up_no_event(tmp_path: Path, slow: Slow) -> None:
    """A stop without an exit is asked for beside the stream; the exit of another that comes next is seen at once."""
    async with World(tmp_path, RuntimeOptions(latency_s=slow), ONLY_EVENTS) as world:
        await streaming(world)
        first, second = await world.run(owner("first", 1)), await world.at_rest(owner("second", 1))
        slow["ContainerStatus"] = 60.0
        stopped = api.ContainerEventResponse(container_id=first, container_event_type=api.CONTAINER_STOPPED_EVENT)

        for listener in world.runtime.core.events._listeners:
            listener.put_nowait(stopped)
        world.runtime.exit_container(second)

        await world.until(lambda: world.controller.node.containers[second].state is ContainerState.EXITED)
        assert world.controller.node.containers[first].state is ContainerState.RUNNING
        assert asking(first) == 1


@pytest.mark.parametrize("start", [False, True])
async def test_what_was_learnt_and_could_not_be_booked_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, start: bool
) -> None:
    """An exception of ours ends no question: until the answer counts, the container is in doubt."""
    learn, planted = Outcomes._apply_state, [ValueError("planted")]

    async def fails_once(self: Outcomes, key: str, state: ContainerState | None) -> None:
        if planted:
            raise planted.pop()
        await learn(self, key, state)

    async with World(tmp_path, NO_EVENTS, QUIET) as world:
        owned = await world.at_rest(owner("owner", 1))
        inquiry = world.controller.outcomes
        monkeypatch.setattr(Outcomes, "_apply_state", fails_once)
        world.runtime.exit_container(owned)

        (inquiry.start_unknown if start else inquiry.ask)(owned)

        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.EXITED)
        await world.poll(lambda: not asking(owned))
        assert world.controller.context.failures.counts["watcher"] == 1


@pytest.mark.parametrize(("of", "name"), [(outcomes, "stamped"), (Outcomes, "_ask_twice")])
async def test_an_exception_of_ours_keeps_no_reservation_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: object, name: str
) -> None:
    """Whatever is raised while a create that was cut is asked for: it left nothing, and its place is given back."""
    original, planted, slow = getattr(of, name), [ValueError("planted")], Slow()

    def fails_once(*args: object) -> object:
        if planted:
            raise planted.pop()
        return original(*args)

    options = replace(NO_EVENTS, latency_s=slow)
    async with World(tmp_path, options, QUIET) as world:
        await world.run(owner("owner", 1))
        monkeypatch.setattr(of, name, fails_once)
        slow["CreateContainer"] = 60.0
        pod = owner("cut", 2)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)
        await world.poll(lambda: not planted)

        await world.until(lambda: world.owned() == {1})

        assert world.controller.context.failures.recent()


async def test_a_reservation_that_nobody_waits_for_is_asked_for(tmp_path: Path) -> None:
    """The next comparison with the runtime finds it, however it came to be left behind."""
    async with World(tmp_path, NO_EVENTS, QUIET) as world:
        owned = await world.at_rest(owner("owner", 1))
        sandbox_id = await world.kubelet.run_sandbox(owner("left", 1))
        left = replace(world.controller.node.containers[owned], key="r-left", pod=sandbox_id, pod_name="left")
        await world.controller.context.state.apply(ContainerCreating(left))
        assert world.owned() == {1, 2}

        world.controller.resync.soon()

        await world.until(lambda: world.owned() == {1})
