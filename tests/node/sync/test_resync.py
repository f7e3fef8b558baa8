"""The runtime is asked again when it came back and from time to time, and calls that meet a list are not misjudged."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.views.status import summary
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.workload import ContainerState
from criproxy.node.sync.adopt import Adoption
from criproxy.node.sync.resync import Resync
from lab.kubelet.kubelet import MiniKubelet
from tests.node.sync.test_exit_events import no_pass
from tests.node.world import FAST, NO_EVENTS, NO_LOOKS, Slow, World, owner, sharer, situation

LIMIT_S = 60.0
DEAF = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0)
"""Nothing but a resync notices what happens beside criproxy."""
BETWEEN_S = 0.1
"""The shortest pause between two comparisons."""


async def compared_as_after_a_start(world: World) -> None:
    """Wait until all comparisons that a start asks for are done: one at once, and two for what was cut before."""
    await world.poll(lambda: world.counters.resyncs == 3)


async def test_a_restart_of_the_runtime_is_noticed_and_what_happened_meanwhile(tmp_path: Path) -> None:
    """One container has exited, one was removed: within five seconds all is in order."""
    async with World(tmp_path, NO_EVENTS, DEAF) as world:
        stays, exits = await world.run(sharer("stays")), await world.run(owner("exits", 1))
        removed = await world.run(owner("removed", 1))
        assert world.cpus(stays) == "0,3"
        await world.runtime.stop()
        world.runtime.exit_container(exits)
        world.runtime.core.remove_container(world.runtime.core.records.container(removed))
        await world.runtime.start()

        await world.poll(lambda: world.cpus(stays) == "0-3")

        node = world.controller.node
        assert node.containers[exits].state is ContainerState.EXITED
        assert removed not in node.containers
        assert node.grants.keys() == {stays}


async def test_a_call_of_ours_that_does_not_arrive_makes_us_ask(tmp_path: Path) -> None:
    """No kubelet is connected, so no connection ends: an update of ours that fails tells of the restart."""
    async with World(tmp_path, NO_EVENTS, DEAF) as world:
        world.proxy.on_runtime_lost = lambda: None
        shared = await world.run(sharer("shared"))
        owned = await world.run(owner("owner", 1))
        await world.rested()  # else a look that is under way finds again what is forgotten below
        await world.runtime.stop()
        world.controller.reconciler.enqueue([shared], read=True)
        world.controller.context.cgroups.forget(shared)
        await world.poll(lambda: bool(world.controller.reconciler.trouble(shared).error))
        world.runtime.exit_container(owned)
        await world.runtime.start()

        await world.poll(lambda: world.cpus(shared) == "0-3")


async def test_the_runtime_is_asked_from_time_to_time(tmp_path: Path) -> None:
    """What nobody told is found out, and a container that somebody started is taken in."""
    settings = replace(DEAF, resync_interval_s=0.2)
    async with World(tmp_path, NO_EVENTS, settings) as world:
        owned = await world.run(owner("owner", 2))
        await MiniKubelet(world.direct).remove(owned)
        await world.poll(lambda: not world.controller.node.containers)

        world.kubelet._client = world.direct
        foreign = await world.run(sharer("foreign"))

        await world.poll(lambda: foreign in world.controller.node.grants)
        await world.poll(lambda: world.counters.resyncs >= 2)


async def test_a_runtime_that_hangs_is_noticed_between_two_comparisons(tmp_path: Path) -> None:
    """It accepts connections, so only its silence shows it; the sentence names its socket."""
    slow, settings = Slow(), replace(DEAF, answer_check_s=0.05)
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), settings) as world:
        await world.poll(lambda: world.controller.ready)
        resyncs, runtime = world.counters.resyncs, world.controller.context.runtime
        runtime._timeout_s = 0.3
        slow.hold("Version")
        await world.poll(lambda: bool(world.controller.resync.error))

        path = runtime.endpoint.removeprefix("unix://")
        (told,) = [
            each["text"] for each in summary(situation(world.controller))["notices"] if each["kind"] == "runtime"
        ]
        assert told.startswith("criproxy cannot ask the runtime which containers are running: ")
        assert told.endswith(f": the runtime on {path} did not answer Version within 0.3 s")
        runtime._timeout_s = LIMIT_S
        slow.let_go("Version")
        await world.poll(lambda: not world.controller.resync.error)
        assert world.counters.resyncs > resyncs


async def test_a_container_that_was_removed_after_its_end_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had given up its place before; as long as its pod lives, nothing else tells that it is gone."""
    no_pass(monkeypatch)
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        owned = await world.run(owner("owner", 2))
        await world.rested()  # else a look may find its end before the answer of its stop tells it
        await world.kubelet.stop(owned)
        await world.until(lambda: not world.owned())

        await MiniKubelet(world.direct).remove(owned)
        world.controller.resync.soon()

        await world.poll(lambda: not world.controller.node.containers)
        assert world.controller.node.pods
        assert not world.counters.exits


async def test_a_later_resync_lets_held_calls_through(tmp_path: Path) -> None:
    """While the runtime does not answer the lists, creates and starts go on."""
    slow = Slow(ListPodSandbox=0.0)
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), DEAF) as world:
        await world.run(owner("first", 1))
        slow["ListPodSandbox"] = 2 * LIMIT_S
        slow.asked.clear()
        world.controller.runtime_lost()
        await slow.asked.wait()

        second = await world.run(owner("second", 1))

        assert world.cpus(second) == "2"


@pytest.mark.parametrize("how", ["stop", "remove", "remove pod"])
async def test_who_ends_while_being_taken_in_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The list is older than the call that ended the container: it must not be believed."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    look = Adoption._inspect

    async def looked(self: Adoption, item: api.Container, until_s: float) -> object:
        seen = await look(self, item, until_s)
        asked.set()
        await go_on.wait()
        return seen

    async with World(tmp_path, NO_EVENTS, DEAF) as world:
        await compared_as_after_a_start(world)  # they would find it, too
        world.kubelet._client = world.direct
        sandbox_id, ids = await world.kubelet.run_pod(owner("foreign", 1))
        world.kubelet._client = world.client
        monkeypatch.setattr(Adoption, "_inspect", looked)
        world.controller.runtime_lost()
        await asked.wait()
        if how == "remove pod":
            await world.kubelet.remove_pod(sandbox_id)
        elif how == "remove":
            await world.kubelet.remove(ids["main"])
        else:
            await world.kubelet.stop(ids["main"])
        resyncs = world.counters.resyncs

        go_on.set()
        await world.poll(lambda: world.counters.resyncs > resyncs)
        world.controller.resync.soon()

        await world.poll(lambda: world.counters.resyncs >= resyncs + 2)
        assert not world.controller.node.grants


async def test_a_create_and_start_that_cross_a_list_are_booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list was asked for before the create was answered, and says of the container that it does not run."""
    slow = Slow(CreateContainer=0.1)
    listed, go_on = asyncio.Event(), asyncio.Event()
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), DEAF) as world:
        await compared_as_after_a_start(world)
        pod = owner("owner", 1)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        creating = asyncio.create_task(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        await slow.asked.wait()
        client = world.controller.context.runtime
        list_containers = client.list_containers

        async def lists() -> Sequence[api.Container]:
            await asyncio.wait([creating])
            items = await list_containers()
            listed.set()
            await go_on.wait()
            return items

        monkeypatch.setattr(client, "list_containers", lists)
        resyncs = world.counters.resyncs
        world.controller.runtime_lost()
        await listed.wait()
        await world.kubelet.start(await creating)
        await world.booked()
        go_on.set()
        await world.poll(lambda: world.counters.resyncs > resyncs)

        (container,) = world.controller.node.containers.values()
        assert container.state is ContainerState.RUNNING


async def test_asking_again_and_again_costs_a_few_lists(tmp_path: Path) -> None:
    """A runtime that ends every connection does not keep criproxy busy with lists."""
    loop = asyncio.get_running_loop()
    async with World(tmp_path, NO_EVENTS, DEAF) as world:
        await compared_as_after_a_start(world)
        before, begun_s = world.counters.resyncs, loop.time()

        for _ in range(100):
            world.controller.runtime_lost()
            await asyncio.sleep(0.003)

        assert world.counters.resyncs - before <= (loop.time() - begun_s) / BETWEEN_S + 2


async def test_a_runtime_that_stays_away_is_told_of_once(tmp_path: Path) -> None:
    """The log says when it went and when it came back, and not every second between."""
    async with World(tmp_path, NO_EVENTS, DEAF) as world:
        await compared_as_after_a_start(world)  # none of them is cut, which would be told, too
        await world.runtime.stop()
        world.controller.runtime_lost()
        await world.poll(lambda: world.counters.resync_failures >= 3)
        await world.runtime.start()

        await world.poll(lambda: "the runtime lists its containers again" in world.log.events())

        assert world.log.events().count("cannot ask the runtime which containers are running") <= 2


async def test_a_start_by_the_beginning_of_an_id_touches_its_container(tmp_path: Path) -> None:
    """Lists from before say nothing of it: as for its stop and its removal, the whole id counts."""
    async with World(tmp_path, NO_EVENTS, DEAF) as world:
        _, container_id = await world.created(owner("owner", 1))
        await world.poll(lambda: container_id in world.controller.node.containers)
        resync = world.controller.resync
        async with resync._one:  # a comparison is under way
            await world.kubelet.start(container_id[:20])
            await world.booked()

            assert container_id in resync._touched


async def test_a_cut_removal_is_looked_for_twice_each_time_after_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime may still be at it at first: a look at once would be one look less."""
    pause_s = 0.2
    async with World(tmp_path, NO_EVENTS, replace(DEAF, unknown_pause_s=pause_s)) as world:
        resync, loop = world.controller.resync, asyncio.get_running_loop()
        await compared_as_after_a_start(world)
        at_s, compare = list[float](), Resync._compare

        async def timed(self: Resync, *, thorough: bool) -> None:
            at_s.append(loop.time())
            await compare(self, thorough=thorough)

        monkeypatch.setattr(Resync, "_compare", timed)
        begun_s = loop.time()
        resync.check_removals()
        await world.poll(lambda: len(at_s) == 2)

        assert at_s[0] - begun_s >= pause_s * 0.95
        assert at_s[1] - begun_s >= 2 * pause_s * 0.95


async def test_a_sandbox_may_be_named_by_the_beginning_of_its_id(world: World) -> None:
    """As crictl does for people, and runtimes understand it: the next list takes nothing from its containers."""
    pod = owner("pod")
    sandbox_id = await world.kubelet.run_sandbox(pod)

    container_id = await world.kubelet.create(pod, sandbox_id[:12], pod.containers[0])

    await world.poll(lambda: container_id in world.controller.node.containers)
    assert world.controller.node.containers[container_id].pod == sandbox_id
    await world.kubelet.start(container_id)
    await world.rested()
    await compared_as_after_a_start(world)
    compared = world.counters.resyncs
    world.controller.runtime_lost()
    await world.poll(lambda: world.counters.resyncs > compared)
    assert world.owned() == {1}


@pytest.mark.parametrize("restart", [False, True], ids=["at-once", "after-a-restart"])
async def test_a_container_that_was_given_up_while_it_started_gets_a_place_again(
    tmp_path: Path, slow: Slow, restart: bool
) -> None:
    """Its later attempt came before the answer of its start: it runs, so no container gets its CPUs exclusively."""
    slow.hold("StartContainer")
    options = replace(NO_EVENTS, latency_s=slow)
    async with World(tmp_path, options, DEAF) as world:
        pod = sharer("pod")
        sandbox_id, first = await world.created(pod)
        starting = asyncio.create_task(world.kubelet.start(first))
        await slow.asked.wait()
        await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
        assert world.controller.node.containers[first].state is ContainerState.EXITED
        if restart:
            await world.stop_criproxy()
            with suppress(RuntimeCallError):
                await starting
            slow.let_go("StartContainer")
            await world.poll(lambda: world.runtime.core.records.container(first).state == api.CONTAINER_RUNNING)
            await world.start_criproxy()
        else:
            slow.let_go("StartContainer")
            await starting

        await world.poll(lambda: first in world.controller.node.grants)
        await world.run(owner("owner", 2))

        assert world.cpus(first) == "0,3"
