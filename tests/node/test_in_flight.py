"""What is under way in the runtime while an owner starts: updates that give CPUs, and what criproxy left behind."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.live import LiveNode
from criproxy.cri import api_pb2 as api
from criproxy.errors import StatusCode
from criproxy.model.workload import ContainerState
from lab.emulator.runtime import RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet, PodSpec
from tests.node.world import FAST, NO_LOOKS, Slow, World, cut, owner, refusal, sharer, situation

LIMIT_S = 60.0
SLOW_S = 0.3
POLL_S = 0.005


def group_of(root: Path, container_id: str) -> Path:
    """The cpuset cgroup of a container of the embedded runtime."""
    (group,) = root.glob(f"sys/fs/cgroup/cpuset/**/{container_id}")
    return group


async def overlaps(world: World, owned: str, other: str, seconds: float) -> set[str]:
    """What was seen of *other* within the time while it ran on a CPU of the owner's."""
    found: set[str] = set()
    async with asyncio.timeout(seconds + LIMIT_S):
        for _ in range(int(seconds / POLL_S)):
            mine, others = world.runtime.cpuset(owned), world.runtime.cpuset(other)
            if mine and others and mine.cpus & others.cpus:
                found.add(f"{world.cpus(owned)} and {world.cpus(other)}")
            await asyncio.sleep(POLL_S)
    return found


async def test_a_start_waits_for_a_grow_that_is_under_way(tmp_path: Path) -> None:
    """CPUs that were given back, and that the next owner gets while the update which hands them out is on its way."""
    slow = Slow(UpdateContainerResources=SLOW_S)
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        shared = await world.run(sharer("shared"))
        first = await world.run(owner("first"))
        assert world.cpus(shared) == "0,2-3"
        slow.asked.clear()
        await world.kubelet.stop(first)
        await world.until(lambda: not world.owned())
        await slow.asked.wait()  # the update with the larger set is with the runtime

        second = await world.run(owner("second"))

        assert await overlaps(world, second, shared, 2 * SLOW_S) == set()
        assert (world.cpus(second), world.cpus(shared)) == ("1", "0,2-3")


async def test_a_start_waits_for_a_grow_of_a_resize(tmp_path: Path) -> None:
    """The same where the larger set travels in an update of the kubelet's."""
    slow = Slow(UpdateContainerResources=SLOW_S)
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        first = await world.run(owner("first"))
        grows = await world.run(owner("grows"))
        await world.kubelet.stop(first)
        half = api.LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, cpu_period=100_000)

        slow.asked.clear()
        resize = asyncio.create_task(world.kubelet.update(grows, half))
        await world.until(lambda: not world.owned())
        await slow.asked.wait()
        second = await world.run(owner("second"))

        assert world.cpus(second) == "1"
        assert await overlaps(world, second, grows, 2 * SLOW_S) == set()
        await resize


async def test_a_start_waits_until_others_were_seen_after_a_restart(tmp_path: Path) -> None:
    """The store does not know of an update that was under way when criproxy ended; the cgroups do."""
    slow = RuntimeOptions(latency_s={"ContainerStatus": SLOW_S})
    async with World(tmp_path, slow) as world:
        shared = await world.run(sharer("shared"))
        sandbox_id, _ = await world.kubelet.run_pod(owner("first"))
        await world.stop_criproxy()
        everything = api.LinuxContainerResources(cpuset_cpus="0-3", cpuset_mems="0")
        await world.direct.update_container_resources(shared, everything)
        await MiniKubelet(world.direct).remove_pod(sandbox_id)

        await world.start_criproxy()
        second = await world.run(owner("second"))

        assert await overlaps(world, second, shared, 2 * SLOW_S) == set()


async def test_a_start_waits_for_one_that_criproxy_left_behind(tmp_path: Path) -> None:
    """A container that is being started when criproxy ends will run with the CPUs that it was created with."""
    slow = Slow(StartContainer=SLOW_S)
    patient = replace(FAST, unknown_pause_s=SLOW_S)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), patient) as world:
        _, late = await world.created(sharer("late"))
        await world.stop_criproxy()
        start = api.StartContainerRequest(container_id=late)
        begun = asyncio.create_task(world.direct.call("StartContainer", start, api.StartContainerResponse))
        await slow.asked.wait()

        await world.start_criproxy()
        owned = await world.run(owner("owner"))

        assert await overlaps(world, owned, late, 2 * SLOW_S) == set()
        await begun
        assert world.cpus(late) == "0,2-3"


async def test_a_start_sends_again_what_criproxy_did_not_live_to_see_answered(world: World) -> None:
    """An update of a created container cannot be read back: it would start where that put it."""
    owned = await world.run(owner("owner"))
    _, created = await world.created(sharer("created"))
    await world.rested()
    await world.stop_criproxy()
    everything = api.LinuxContainerResources(cpuset_cpus="0-3", cpuset_mems="0")
    await world.direct.update_container_resources(created, everything)  # sent by the criproxy that has ended
    await world.start_criproxy()

    await world.kubelet.start(created)

    assert (world.cpus(owned), world.cpus(created)) == ("1", "0,2-3")


@pytest.mark.parametrize("end", ["StopPodSandbox", "StopContainer"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same-daemon", "after-a-restart"])
async def test_a_place_outlasts_a_stop_that_overtakes_the_start(tmp_path: Path, end: str, restarted: bool) -> None:
    """The runtime answers OK to a stop of what is just being started, and then it runs after all."""
    slow, patient = Slow(), replace(FAST, unknown_pause_s=LIMIT_S)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), patient) as world:
        shared = await world.run(sharer("shared"))
        sandbox_id, late = await world.created(owner("late"))
        await world.until(lambda: world.cpus(shared) == "0,2-3")  # nothing keeps the start from the runtime
        await world.rested()
        if restarted:
            await world.stop_criproxy()
        client = MiniKubelet(world.direct) if restarted else world.kubelet
        slow.hold("StartContainer")
        start = asyncio.create_task(client.start(late))
        await slow.asked.wait()
        if restarted:
            await world.start_criproxy()

        await (world.kubelet.stop_sandbox(sandbox_id) if end == "StopPodSandbox" else world.kubelet.stop(late))
        await refusal(world.kubelet.remove(late), "is in starting state")

        world.controller.outcomes.ask(late)  # as after a while, and lists are compared, too
        await world.controller.resync.again()
        assert not world.cpus(late)
        slow.let_go("StartContainer")
        assert await overlaps(world, late, shared, 2 * SLOW_S) == set()
        await start
        assert (world.cpus(late), world.cpus(shared)) == ("1", "0,2-3")
        await world.kubelet.stop(late)
        await world.until(lambda: world.cpus(shared) == "0-3")


async def test_a_start_that_a_stopped_sandbox_saw_fail_keeps_no_place(tmp_path: Path) -> None:
    """Once it is sure that the container will not run, what it would have owned is shared."""
    async with World(tmp_path, settings=replace(FAST, unknown_pause_s=LIMIT_S)) as world:
        shared = await world.run(sharer("shared"))
        sandbox_id, late = await world.created(owner("late"))
        await world.until(lambda: world.cpus(shared) == "0,2-3")
        await world.restart()

        await world.kubelet.stop_sandbox(sandbox_id)

        assert world.cpus(shared) == "0,2-3"
        world.controller.context.in_flight._records[late].until_s = 0.0  # it has had its time
        world.controller.outcomes.ask(late)
        await world.until(lambda: world.cpus(shared) == "0-3")
        assert late in world.controller.node.containers


async def left_running(world: World, root: Path, pod: PodSpec, *sharing: str, restarted: bool = False) -> str:
    """A container that containerd 1.6 calls exited though it runs: criproxy died in the middle of its start.

    Args:
        world: with nothing but *sharing*.
        root: of the host.
        pod: of the container; it owns CPU 1, if any.
        sharing: who shares what it does not own.
        restarted: the runtime has restarted since, and calls its state unknown.
    """
    _, late = await world.created(pod)
    await world.until(lambda: all(world.cpus(other) == "0,2-3" for other in sharing))
    await world.stop_criproxy()
    await MiniKubelet(world.direct).start(late)
    (group_of(root, late) / "cgroup.procs").write_text("100001\n")
    world.runtime.forget_process(late, restarted=restarted)
    await world.start_criproxy()
    return late


async def test_a_container_that_runs_though_the_runtime_calls_it_exited_keeps_its_place(tmp_path: Path) -> None:
    """What containerd 1.6 leaves of a start whose call was cut: the kernel knows better, until the processes end."""
    settings = replace(FAST, drift_period_s=0.02)
    async with World(tmp_path, settings=settings) as world:
        shared = await world.run(sharer("shared"))
        late = await left_running(world, tmp_path, owner("late"), shared)

        await world.kubelet.stop(late)
        await world.kubelet.stop_sandbox(world.controller.node.containers[late].pod)
        third = await world.run(sharer("third"))

        assert (world.cpus(shared), world.cpus(third)) == ("0,2-3", "0,2-3")
        await world.poll(lambda: any("whose processes are still running" in event for event in world.log.events()))
        shutil.rmtree(group_of(tmp_path, late))
        await world.until(lambda: world.cpus(shared) == "0-3")


@pytest.mark.parametrize("lost", [False, True], ids=["restarted", "state-lost"])
@pytest.mark.parametrize("restarted", [False, True], ids=["exited", "unknown-after-its-restart"])
async def test_such_a_container_keeps_its_place_over_restarts(
    tmp_path: Path, world: World, restarted: bool, lost: bool
) -> None:
    """Lists call it exited, and nobody remembers that its processes run."""
    shared = await world.run(sharer("shared"))
    late = await left_running(world, tmp_path, owner("late"), shared, restarted=restarted)
    await world.poll(lambda: any("whose processes are still running" in event for event in world.log.events()))
    await world.stop_criproxy()
    if lost:
        shutil.rmtree(tmp_path / "state")

    await world.start_criproxy()
    third = await world.run(sharer("third"))

    await world.poll(lambda: world.controller.node.containers[late].state is ContainerState.RUNNING)
    assert (world.cpus(shared), world.cpus(third)) == ("0,2-3", "0,2-3")
    assert world.owned() == {1}


async def test_an_event_that_calls_exited_what_runs_frees_no_place(tmp_path: Path) -> None:
    """The stream says of such a container what the lists say, and is believed as little."""
    only_events = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0)
    async with World(tmp_path, settings=only_events) as world:
        shared, other = await world.run(sharer("shared")), await world.run(sharer("other"))
        late = await left_running(world, tmp_path, owner("late"), shared, other)
        await world.poll(lambda: any("whose processes are still running" in event for event in world.log.events()))
        core = world.runtime.core
        await world.poll(lambda: bool(core.events.listeners))

        core.events.of_container(api.CONTAINER_STOPPED_EVENT, core.records.container(late))
        world.runtime.exit_container(other)

        await world.until(lambda: world.controller.node.containers[other].state is ContainerState.EXITED)
        third = await world.run(sharer("third"))
        assert (world.cpus(shared), world.cpus(third)) == ("0,2-3", "0,2-3")


@pytest.mark.parametrize("restarted", [False, True], ids=["exited", "unknown-after-its-restart"])
async def test_a_start_says_that_it_waits_for_one_that_the_runtime_lost(tmp_path: Path, restarted: bool) -> None:
    """The runtime answers OK to its updates and changes nothing: only somebody else can help, and is told."""
    settings = replace(FAST, drift_period_s=0.02, barrier_timeout_s=0.3)
    async with World(tmp_path, settings=settings) as world:
        late = await left_running(world, tmp_path, sharer("late"), restarted=restarted)
        _, owned = await world.created(owner("owner"))
        await world.poll(lambda: "has lost track" in world.controller.reconciler.trouble(late).error)

        refused = await refusal(world.kubelet.start(owned), r"late/main.*has lost track of a container")

        assert refused.code is StatusCode.UNAVAILABLE
        (notice,) = situation(world.controller).notices
        assert (notice.kind, notice.text.rpartition(": ")[2]) == ("left-running", "default/late/main")
        shutil.rmtree(group_of(tmp_path, late))
        await world.until(lambda: not LiveNode(world.controller).blockers(owned))
        await world.kubelet.start(owned)
        assert situation(world.controller).notices == ()
        assert len([event for event in world.log.events() if "whose processes are still running" in event]) == 1


async def test_an_update_during_a_start_that_nobody_answers_counts_for_nothing(tmp_path: Path) -> None:
    """The kubelet's connection breaks: the runtime goes on with the start, and may lose an update that it answered."""
    slow = Slow(StartContainer=SLOW_S)
    patient = replace(FAST, unknown_pause_s=SLOW_S)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), patient) as world:
        _, late = await world.created(sharer("late"))
        await cut(world.kubelet.start(late), slow)
        slow.clear()

        owned = await world.run(owner("owner"))

        assert await overlaps(world, owned, late, 2 * SLOW_S) == set()
        assert world.cpus(late) == "0,2-3"


async def test_a_sandbox_that_is_removed_while_lists_are_made_is_not_taken_in(tmp_path: Path) -> None:
    """A list says nothing about what was touched since it was requested."""
    slow = Slow(ListContainers=SLOW_S)
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        await world.stop_criproxy()
        sandbox_id = await MiniKubelet(world.direct).run_sandbox(sharer("short"))
        slow.asked.clear()
        await world.start_criproxy()
        await slow.asked.wait()

        await world.kubelet.remove_pod(sandbox_id)
        await world.run(sharer("next"))

        assert sandbox_id not in world.controller.node.pods


async def come_and_go(world: World, pod: PodSpec) -> None:
    """A pod that goes when nobody asks any more what became of the start of its container."""
    sandbox_id, ids = await world.kubelet.run_pod(pod)
    await world.poll(lambda: not world.controller.context.in_flight.is_asked(ids["main"]))
    await world.kubelet.remove_pod(sandbox_id)


async def test_where_nothing_is_placed_nothing_is_kept_of_containers_that_are_gone(tmp_path: Path) -> None:
    """After a release no CPUs are compared: what was in flight is forgotten all the same."""
    async with World(tmp_path, settings=NO_LOOKS) as world:
        await world.controller.policy_switch.release("test")
        for number in range(3):
            await come_and_go(world, sharer(f"p{number}"))
        await world.poll(lambda: not world.controller.node.containers)
        await world.rested()

        assert not world.controller.context.in_flight.changed()
