"""Calls that end without an answer: the runtime is asked what became of them, and until then nothing is given away."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.errors import StatusCode
from criproxy.model.workload import ContainerState
from criproxy.node.calls.start import Starts
from criproxy.node.cgroups import AT_ONCE
from criproxy.node.sync.resync import Resync
from lab.emulator.runtime import RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.node.calls.test_update import size
from tests.node.sync.test_resync import compared_as_after_a_start
from tests.node.world import FAST, NO_EVENTS, Slow, World, cut, owner, refusal, said, sharer

LIMIT_S = 60.0
SLOW_TO_ASK = replace(FAST, unknown_pause_s=0.3, exit_list_s=3600.0, drift_period_s=3600.0)


def runtime(slow: Slow) -> RuntimeOptions:
    """A runtime that takes its time and sends no events."""
    return replace(NO_EVENTS, latency_s=slow)


def is_asked_for(key: str) -> bool:
    """Whether criproxy has yet to find out what became of a call."""
    return any(task.get_name() == f"ask for {key}" for task in asyncio.all_tasks())


def milli(world: World, key: str) -> int:
    """What a container asks for, as criproxy believes."""
    return world.controller.node.containers[key].cpu_milli


async def test_a_cut_resize_that_the_runtime_did_counts(tmp_path: Path) -> None:
    """The new size is in force: it keeps the place for it."""
    slow = Slow(UpdateContainerResources=0.2)
    async with World(tmp_path, runtime(slow), SLOW_TO_ASK) as world:
        owned = await world.run(owner("owner", 1))

        await cut(world.kubelet.update(owned, size(2000)), slow)

        await world.poll(lambda: world.counters.inquiries == 1)
        await world.poll(lambda: not is_asked_for(owned))
        assert milli(world, owned) == 2000
        await world.poll(lambda: world.cpus(owned) == "1-2")


async def test_a_cut_resize_that_never_reached_the_runtime_is_undone(tmp_path: Path) -> None:
    """Two looks say that the old size is in force; the CPUs that it would have got are free again."""
    slow = Slow(UpdateContainerResources=60.0)
    async with World(tmp_path, runtime(slow), replace(FAST, unknown_pause_s=0.3)) as world:
        owned = await world.run(owner("owner", 1))

        await cut(world.kubelet.update(owned, size(2000)), slow)
        slow.clear()
        assert milli(world, owned) == 2000

        await world.poll(lambda: milli(world, owned) == 1000)
        assert world.owned() == {1}


async def test_a_cut_shrink_whose_cpus_others_have_by_then_is_told_of(tmp_path: Path) -> None:
    """The old size is in force, and has no room any more: the container gets it as soon as there is."""
    slow = Slow(UpdateContainerResources=60.0)
    async with World(tmp_path, runtime(slow), replace(FAST, unknown_pause_s=0.3)) as world:
        owned = await world.at_rest(owner("owner", 3))
        world.runtime.lose_status(owned)  # which size is in force is not known before the others have the CPUs
        await cut(world.kubelet.update(owned, size(1000)), slow)
        slow.clear()
        other = await world.run(owner("other", 2))
        world.runtime.lose_status(owned, "")

        await world.until(lambda: world.controller.node.containers[owned].desired is not None)

        (sentence,) = said(world)
        assert "default/owner/main should have 3 CPUs" in sentence
        await world.kubelet.remove_pod(world.controller.node.containers[other].pod)
        await world.poll(lambda: world.cpus(owned) == "1-3")
        assert said(world) == []


async def test_a_resize_after_a_cut_one_is_not_undone(tmp_path: Path) -> None:
    """The kubelet tries again with another size: only that one counts."""
    slow = Slow(UpdateContainerResources=0.2)
    async with World(tmp_path, runtime(slow), SLOW_TO_ASK) as world:
        owned = await world.run(owner("owner", 1))
        await cut(world.kubelet.update(owned, size(2000)), slow)

        await world.kubelet.update(owned, size(3000))

        await world.poll(lambda: world.counters.inquiries == 1)
        await world.poll(lambda: not is_asked_for(owned))
        assert milli(world, owned) == 3000
        await world.poll(lambda: world.cpus(owned) == "1-3")


@pytest.mark.parametrize(
    ("method", "end", "left"),
    [
        pytest.param("StopContainer", lambda world, _, key: world.kubelet.stop(key), (1, 1), id="stop"),
        pytest.param("StopPodSandbox", lambda world, pod, _: world.kubelet.stop_sandbox(pod), (1, 1), id="stop-pod"),
        pytest.param("RemoveContainer", lambda world, _, key: world.kubelet.remove(key), (1, 0), id="remove"),
        pytest.param("RemovePodSandbox", lambda world, pod, _: world.kubelet.remove_pod(pod), (0, 0), id="remove-pod"),
    ],
)
async def test_a_cut_end_is_asked_for(
    tmp_path: Path,
    method: str,
    end: Callable[[World, str, str], Coroutine[object, object, None]],
    left: tuple[int, int],
) -> None:
    """The runtime was done with it all the same: a place is given back, and what was removed is forgotten."""
    slow = Slow(**{method: 0.2})
    async with World(tmp_path, runtime(slow), replace(SLOW_TO_ASK, exit_list_s=0.1)) as world:
        sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 2))

        await cut(end(world, sandbox_id, ids["main"]), slow)

        node = world.controller.context.state
        await world.poll(lambda: (len(node.node.pods), len(node.node.containers)) == left and not world.owned())


async def test_a_removal_that_criproxy_does_not_live_to_see_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime is done only after the next criproxy has asked it what there is."""
    removed, compare = asyncio.Event(), Resync._compare

    async def compared(self: Resync, *, thorough: bool) -> None:
        if not thorough:  # the first one is
            await removed.wait()
        await compare(self, thorough=thorough)

    async with World(tmp_path, runtime(Slow()), SLOW_TO_ASK) as world:
        sandbox_id, _ = await world.kubelet.run_pod(owner("owner", 1))
        await world.stop_criproxy()
        monkeypatch.setattr(Resync, "_compare", compared)
        await world.start_known()
        assert sandbox_id in world.controller.node.pods

        await MiniKubelet(world.direct).remove_pod(sandbox_id)
        removed.set()

        await world.poll(lambda: not world.controller.node.pods)


@pytest.mark.parametrize("restart", [False, True], ids=["cut", "restart"])
async def test_a_removed_pod_is_forgotten_after_the_create_in_it_that_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    """The lists that its removal brings are answered while its container may still be being created: another comes."""
    slow, removed, denied, compare = Slow(CreateContainer=60.0), asyncio.Event(), list[asyncio.Event](), Resync._compare
    world = World(tmp_path, runtime(slow), replace(SLOW_TO_ASK, unknown_pause_s=0.02))
    world.prepare = lambda _: denied.append(unanswered(world, monkeypatch))

    async def compared(self: Resync, *, thorough: bool) -> None:
        await removed.wait()
        await compare(self, thorough=thorough)

    async with world:
        pod = owner("owner", 1)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        await compared_as_after_a_start(world)
        await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)
        if restart:
            await world.stop_criproxy()
            await MiniKubelet(world.direct).remove_pod(sandbox_id)
            await world.start_criproxy()
        else:
            slow.hold("RemovePodSandbox")
            monkeypatch.setattr(Resync, "_compare", compared)
            await cut(world.kubelet.remove_pod(sandbox_id), slow)
            slow.let_go("RemovePodSandbox")
            await world.poll(lambda: not world.runtime.core.records.sandboxes)
            removed.set()
        await world.poll(lambda: world.counters.resyncs >= 3 + 2 * (not restart))
        assert world.owned()

        denied[-1].set()

        await world.until(lambda: not world.controller.node.pods)


async def test_a_cut_sandbox_is_known_with_its_first_container(tmp_path: Path) -> None:
    """Its create brings all that there is to know of it."""
    slow = Slow(RunPodSandbox=0.1)
    async with World(tmp_path, runtime(slow), SLOW_TO_ASK) as world:
        pod = owner("cut", 1)
        await cut(world.kubelet.run_sandbox(pod), slow)
        await world.poll(lambda: bool(world.runtime.core.records.sandboxes))
        (sandbox_id,) = world.runtime.core.records.sandboxes

        await world.kubelet.create(pod, sandbox_id, pod.containers[0])

        assert world.controller.node.pods[sandbox_id].name == "cut"


async def test_a_create_of_unknown_outcome_gives_way_to_its_next_attempt(tmp_path: Path) -> None:
    """As soon as a list shows that the runtime has created it: nobody will start it, and nothing is kept for it."""
    slow = Slow(CreateContainer=0.2)
    async with World(tmp_path, runtime(slow), SLOW_TO_ASK) as world:
        pod = owner("pod", 1)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)

        again = await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
        await world.kubelet.start(again)
        await world.poll(lambda: len(world.runtime.core.records.containers) == 2)

        await world.poll(lambda: world.owned() == world.controller.node.grants[again].exclusive)
        assert len(world.owned()) == 1
        assert not world.controller.node.containers[again].of_pod
        assert len(world.cpus(await world.run(owner("other", 2)))) == len("1-2")


async def test_a_container_that_was_given_up_before_it_ran_is_not_started(world: World) -> None:
    """Nobody holds a place for it: it would run on the CPUs that its create named, which others may own by now."""
    pod = sharer("pod")
    sandbox_id, first = await world.created(pod)
    await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
    await world.poll(lambda: world.controller.node.containers[first].state is ContainerState.EXITED)
    await world.run(owner("owner", 1))

    caught = await refusal(world.kubelet.start(first))

    assert caught.code is StatusCode.FAILED_PRECONDITION
    assert "default/pod/main was abandoned before it ran" in caught.details
    assert world.runtime.cpuset(first) is None


async def test_a_container_that_is_given_up_while_its_start_waits_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next attempt has the CPUs that its create named; the start had waited for another to leave them."""
    slow, waits, gives_way = Slow(), asyncio.Event(), Starts._wait_for

    async def seen(starts: Starts, other: str, key: str) -> None:
        waits.set()
        await gives_way(starts, other, key)

    monkeypatch.setattr(Starts, "_wait_for", seen)
    patient = replace(FAST, barrier_timeout_s=LIMIT_S)
    async with World(tmp_path, runtime(slow), patient) as world:
        await world.run(sharer("shared"))
        slow["UpdateContainerResources"] = 60.0
        pod = owner("owner", 2)
        sandbox_id, first = await world.created(pod)
        start = asyncio.create_task(world.kubelet.start(first))
        await waits.wait()

        await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)

        await refusal(start, "was abandoned before it ran")
        assert world.runtime.cpuset(first) is None


async def test_a_cut_start_of_a_sharer_that_runs_is_moved_when_an_owner_comes(tmp_path: Path) -> None:
    """Until the outcome is known it counts as running: the owner's start waits for its CPUs."""
    slow = Slow(StartContainer=0.3)
    async with World(tmp_path, runtime(slow), replace(FAST, unknown_pause_s=0.4)) as world:
        _, shared = await world.created(sharer("cut"))
        await cut(world.kubelet.start(shared), slow)

        owned = await world.run(owner("owner", 2))

        assert world.cpus(owned) == "1-2"
        assert world.cpus(shared) == "0,3"


class Counting(Slow):
    """Counts how often the latency of a method is looked up: twice with each call."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_up = Counter[str]()

    def get(self, method: str, default: float = 0.0) -> float:  # type: ignore[override]  # narrower than that of a dict
        """The latency of *method*."""
        self.looked_up[method] += 1
        return super().get(method, default)


async def test_after_a_restart_only_some_are_asked_for_at_once(tmp_path: Path) -> None:
    """Of many that may be being started: neither the runtime nor our memory has to bear all of them together."""
    slow = Counting()
    async with World(tmp_path, runtime(slow), SLOW_TO_ASK) as world:
        pod = sharer("many")
        sandbox = await world.kubelet.run_sandbox(pod)
        for number in range(4 * AT_ONCE):
            await world.kubelet.create(pod, sandbox, replace(pod.containers[0], name=f"c{number}"))
        await world.stop_criproxy()
        slow["ContainerStatus"] = LIMIT_S
        slow.looked_up.clear()

        await world.start_criproxy()
        await world.poll(lambda: slow.looked_up["ContainerStatus"] >= 2 * AT_ONCE)
        await world.poll(lambda: slow.looked_up["ListContainers"] > 0)
        await world.direct.version()  # after whatever was sent before

        # Workers that read what containers have may ask, too.
        assert slow.looked_up["ContainerStatus"] <= 2 * (AT_ONCE + SLOW_TO_ASK.concurrent_updates)


def unanswered(world: World, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the lists that criproxy wants because a create was cut wait for the event that this returns."""
    client, go_on = world.controller.context.runtime, asyncio.Event()
    list_containers = client.list_containers

    async def lists(sandbox_id: str = "") -> Sequence[api.Container]:
        if (task := asyncio.current_task()) and task.get_name().startswith("ask for "):
            await go_on.wait()
        return await list_containers(sandbox_id)

    monkeypatch.setattr(client, "list_containers", lists)
    return go_on


async def test_a_cut_create_is_not_given_up_while_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists from the time of the repetition deny nothing: two more show that none of the two made a container."""
    slow = Counting()
    slow["CreateContainer"] = 60.0
    quick = replace(SLOW_TO_ASK, unknown_pause_s=0.02)
    async with World(tmp_path, runtime(slow), quick) as world:
        pod = owner("owner", 2)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        repeated = unanswered(world, monkeypatch)  # else two lists could deny the first one before it is repeated
        await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)
        world.runtime.core.records.names.clear()  # the runtime gives up, too
        slow.asked.clear()
        again = asyncio.create_task(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        await slow.asked.wait()
        repeated.set()
        listed = slow.looked_up["ListContainers"]

        await world.poll(lambda: slow.looked_up["ListContainers"] >= listed + 2 * 4)
        assert world.owned() == {1, 2}

        again.cancel()
        listed = slow.looked_up["ListContainers"]
        await world.until(lambda: not world.owned())
        assert slow.looked_up["ListContainers"] >= listed + 2 * 2
        assert not world.controller.node.containers


async def test_a_container_whose_create_is_repeated_and_cut_stays_known(tmp_path: Path, slow: Slow) -> None:
    """No create ends a container that has an id: its CPUs stay its own, whatever became of the repetition."""
    quick = replace(SLOW_TO_ASK, unknown_pause_s=0.02)
    async with World(tmp_path, runtime(slow), quick) as world:
        pod = owner("owner", 2)
        owned = await world.run(pod)
        sandbox_id, in_flight = world.controller.node.containers[owned].pod, world.controller.context.in_flight

        slow["CreateContainer"] = 60.0
        await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)

        await world.poll(lambda: not in_flight.is_creating(owned) and not is_asked_for(owned))
        assert owned in world.controller.node.containers
        assert world.owned() == {1, 2}


async def test_a_resize_that_is_cut_again_is_asked_for_anew(tmp_path: Path) -> None:
    """What the runtime said before the repetition says nothing of it: two more answers undo the resize."""
    slow = Counting()
    async with World(tmp_path, runtime(slow), SLOW_TO_ASK) as world:
        owned = await world.at_rest(owner("owner", 1))
        slow["UpdateContainerResources"] = 60.0
        await cut(world.kubelet.update(owned, size(2000)), slow)
        slow.clear()
        asked = slow.looked_up["ContainerStatus"]
        await world.poll(lambda: slow.looked_up["ContainerStatus"] >= asked + 2)

        slow["UpdateContainerResources"] = 60.0
        await cut(world.kubelet.update(owned, size(2000)), slow)
        slow.clear()

        asked = slow.looked_up["ContainerStatus"]
        await world.poll(lambda: milli(world, owned) == 1000)
        assert slow.looked_up["ContainerStatus"] >= asked + 2 * 2


async def test_a_start_of_unknown_outcome_outlasts_a_release(tmp_path: Path, slow: Slow) -> None:
    """Its container may come up yet when it is released: the runtime's "not started" is not believed until then."""
    slow.hold("StartContainer")
    patient = replace(SLOW_TO_ASK, unknown_pause_s=10.0)
    async with World(tmp_path, runtime(slow), patient) as world:
        _, owned = await world.created(owner("owner", 1))
        await cut(world.kubelet.start(owned), slow)

        await world.controller.policy_switch.release("for the test")
        await world.rested()

        assert owned not in world.controller.node.grants
        assert world.controller.context.in_flight.is_start_unknown(owned)
        slow.let_go("StartContainer")
        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.RUNNING)
        await world.poll(lambda: not world.controller.context.in_flight.is_starting(owned))
