"""Containers that are created past criproxy, or without it: they are known as such, and get their place."""

import errno
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time

import asyncinotify
import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.record import Kind
from criproxy.model.text.notices import timestamp
from criproxy.model.workload import Container
from criproxy.node.record import outbox
from criproxy.node.settings import Adopt, Promote
from criproxy.node.sync import unseen
from criproxy.node.sync.unseen import FILE, SEEN
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.static import StaticOptions
from lab.kubelet.kubelet import MiniKubelet, PodSpec
from tests.node.record.test_crash_points import Disks, Point
from tests.node.world import NO_EVENTS, NO_LOOKS, STATIC, Slow, World, owner, said, sharer

UNTIL_ASKED = replace(NO_LOOKS, promote=Promote.OFF)
"""Nobody gets a place later, so that a test sees who has none."""


async def run_past(world: World, pod: PodSpec) -> str:
    """Run a pod as a kubelet does that calls the runtime itself."""
    world.kubelet._client = world.direct
    try:
        return await world.run(pod)
    finally:
        world.kubelet._client = world.client


def known(world: World, container_id: str) -> Container:
    """What the controller knows."""
    return world.controller.node.containers[container_id]


async def told(world: World, container_id: str) -> tuple[str, float]:
    """What the history says about the time without a place, and since when that was."""
    await world.controller.context.state.flush()
    entries = await world.controller.context.state.find_history(container_id)
    (entry,) = [each for each in entries if "unplaced_since_s" in each.facts]
    (text,) = [each for each in entry.sentences if "without having been placed" in each]
    return text, entry.at_s - float(str(entry.facts["unplaced_since_s"]))


async def test_it_is_noticed_by_its_cgroup_and_placed_at_once(tmp_path: Path) -> None:
    """No event, list or look tells of it; owners get CPUs of their own, sharers leave those of others."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.run(owner("first"))

        past, shared = await run_past(world, owner("past")), await run_past(world, sharer("shared"))

        await world.poll(lambda: (world.cpus(past), world.cpus(shared)) == ("2", "0,3"))
        await world.until(lambda: not known(world, past).missed and not known(world, shared).missed)
        text, lasted_s = await told(world, past)
        assert 0 < lasted_s < 2
        assert text.startswith("it ran without having been placed from 20")
        assert text.endswith(f"({lasted_s:.1f} s)")
        assert lasted_s <= world.counters.unplaced_s < 4
        assert known(world, shared).missed is None


async def test_it_is_stored_with_its_place_for_how_long_it_had_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could tell after the end of criproxy at that moment: other entries of the history come later."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.run(owner("first"))
        monkeypatch.setattr(outbox, "LINGER_S", 3600.0)
        past = await run_past(world, owner("past"))
        await world.until(lambda: past in world.controller.node.containers and known(world, past).missed is None)

        with closing(sqlite3.connect(tmp_path / "state" / "criproxy.db")) as database:
            query = "SELECT count(*) FROM decisions WHERE key = ? AND facts LIKE '%unplaced_since_s%'"
            await world.poll(lambda: database.execute(query, (past,)).fetchone()[0] == 1)


async def test_a_kernel_without_watches_for_us_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else uses up the inotify instances of root for a while."""
    refused, made = 0, asyncinotify.Inotify

    def refuse() -> asyncinotify.Inotify:
        nonlocal refused
        if refused < 2:
            refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return made()

    monkeypatch.setattr(asyncinotify, "Inotify", refuse)
    monkeypatch.setattr(unseen, "AGAIN_S", 0.01)
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.run(owner("first"))

        past = await run_past(world, owner("past"))

        await world.poll(lambda: world.cpus(past) == "2")
        assert refused == 2


async def test_one_in_a_pod_that_is_known(tmp_path: Path) -> None:
    """The kubelet went past criproxy only for the container."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.run(owner("first"))
        pod = owner("past")
        sandbox_id = await world.kubelet.run_sandbox(pod)
        world.kubelet._client = world.direct

        past = await world.kubelet.create(pod, sandbox_id, pod.containers[0])
        await world.kubelet.start(past)

        await world.poll(lambda: world.cpus(past) == "2")


async def test_one_that_came_while_criproxy_was_away(tmp_path: Path) -> None:
    """It is placed after the start; one from before criproxy was there stays where it is."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.stop_criproxy()
        shutil.rmtree(tmp_path / "state")
        early = await run_past(world, owner("early"))
        await world.start_criproxy()
        placed = await world.run(owner("placed"))
        await world.stop_criproxy()
        late = await run_past(world, owner("late"))

        await world.start_criproxy()

        await world.poll(lambda: world.cpus(late) == "2")
        assert (world.cpus(early), world.cpus(placed)) == ("0,3", "1")
        assert known(world, early).missed is None


async def test_one_that_came_before_criproxy_placed_anything(tmp_path: Path) -> None:
    """As on a new node whose runtime does not ask criproxy yet: it is there, and would have placed it."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        past = await run_past(world, owner("past"))
        await world.controller.resync.again()  # the node had no cgroup of pods, so that nobody tells

        await world.poll(lambda: world.cpus(past) == "1")
        await world.until(lambda: not known(world, past).missed)
        await told(world, past)


def keep(_: Path) -> None:
    """Lose nothing."""


@pytest.mark.parametrize(
    ("lose", "is_told"),
    [
        pytest.param(keep, True, id="the file remembers since when"),
        pytest.param(lambda state: (state / "criproxy.db").unlink(), True, id="the database alone is lost"),
        pytest.param(shutil.rmtree, False, id="all is lost, and nobody is left who tells"),
    ],
)
async def test_who_remembers_since_when_containers_are_placed(
    tmp_path: Path, lose: Callable[[Path], object], is_told: bool
) -> None:
    """The oldest container that was placed may be gone by then."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        await world.kubelet.remove(await placed_and_listed(world))
        await world.stop_criproxy()
        past = await run_past(world, owner("past"))
        lose(tmp_path / "state")

        await world.start_criproxy()
        await world.until(lambda: past in world.controller.node.containers)

        assert (known(world, past).missed is not None) == is_told
        why = "criproxy was not asked when it was created or started"
        assert bool(said(world, why)) == is_told


async def placed_and_listed(world: World) -> str:
    """A container that was placed and that a list has shown, so that it is on disk since when that is done."""
    placed = await world.run(sharer("placed"))
    await world.controller.resync.again()
    await world.poll((world._directory / "state" / FILE).exists)
    return placed


async def test_the_stamps_of_those_that_run_tell_after_a_loss(tmp_path: Path) -> None:
    """Who was created before the oldest of them does not count as passed by, who came after it does."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        early = await run_past(world, owner("early"))
        await world.run(sharer("placed"))
        await world.stop_criproxy()
        late = await run_past(world, owner("late"))
        shutil.rmtree(tmp_path / "state")

        await world.start_criproxy()
        await world.until(lambda: {early, late} <= world.controller.node.containers.keys())

        assert known(world, early).missed is None
        missed = known(world, late).missed
        assert missed is not None
        assert (missed.unseen, missed.since_s) == (True, 0.0)  # it may have had a place before the loss


async def test_one_that_ends_without_a_place(tmp_path: Path) -> None:
    """Its history says how long it ran so, and the metric has it."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        await placed_and_listed(world)
        past = await run_past(world, owner("past"))
        await world.until(lambda: past in world.controller.node.containers)
        assert world.counters.unplaced_s == 0

        await world.kubelet.stop(past)

        await world.poll(lambda: world.counters.unplaced_s > 0)
        text, lasted_s = await told(world, past)
        assert lasted_s > 0
        assert text.startswith("it ran without having been placed from 20")


@pytest.mark.parametrize("away", [False, True])
async def test_one_that_has_ended_before_it_is_seen(
    tmp_path: Path, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, with its times, also after further restarts; who was seen before is not."""
    monkeypatch.setattr(unseen, "SETTLED_S", 3600.0)
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        seen = await placed_and_listed(world)
        context = world.controller.context
        if away:
            await world.stop_criproxy()
        past = await run_past(world, owner("past"))
        world.runtime.exit_container(past)
        if away:
            world.runtime.exit_container(seen)
            await world.start_criproxy()
            context = world.controller.context

        await world.controller.resync.again()
        await world.restart()
        await world.controller.resync.again()
        await world.controller.resync.again()

        assert past not in world.controller.node.containers
        text, lasted_s = await told(world, past)
        status = (await world.direct.container_status(past)).status
        assert lasted_s >= (status.finished_at - status.created_at) / 1e9
        assert text.endswith("; it ended before criproxy saw it")
        assert context.counters.unplaced_s == pytest.approx((status.finished_at - status.created_at) / 1e9, abs=1e-5)
        others = await world.controller.context.state.find_history(seen)
        assert not [each for each in others if "unplaced_since_s" in each.facts]


async def test_one_that_ends_between_the_list_and_the_look(tmp_path: Path, slow: Slow) -> None:
    """The list calls it running; there is nothing to adopt any more, and no later list need have it."""
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), UNTIL_ASKED) as world:
        await placed_and_listed(world)
        await world.stop_criproxy()
        past = await run_past(world, owner("past"))
        slow.hold("ContainerStatus")
        slow.asked.clear()
        await world.start_criproxy()
        await slow.asked.wait()
        world.runtime.exit_container(past)
        slow.let_go("ContainerStatus")

        await world.poll(lambda: world.controller.ready)

        text, _ = await told(world, past)
        assert text.endswith("; it ended before criproxy saw it")


async def ended_and_listed(world: World) -> tuple[str, Sequence[api.Container]]:
    """A container that ran past criproxy and has ended, and a list of the runtime that says so."""
    await placed_and_listed(world)
    past = await run_past(world, owner("past"))
    world.runtime.exit_container(past)
    return past, await world.direct.list_containers()


async def test_one_that_has_ended_when_the_runtime_goes_away_during_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told when the runtime is back, as it was not yet."""
    monkeypatch.setattr(unseen, "SETTLED_S", 3600.0)
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        past, items = await ended_and_listed(world)
        await world.runtime.stop()
        with pytest.raises(RuntimeCallError):
            await world.controller._placing_since.tell_ended(items)
        await world.runtime.start()

        await world.controller.resync.again()

        await told(world, past)


async def test_one_that_is_removed_between_the_list_and_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list says that it has ended; the runtime does not know when any more."""
    monkeypatch.setattr(unseen, "SETTLED_S", 3600.0)
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        past, items = await ended_and_listed(world)
        await world.direct.call(
            "RemoveContainer", api.RemoveContainerRequest(container_id=past), api.RemoveContainerResponse
        )

        await world.controller._placing_since.tell_ended(items)

        await told(world, past)


@pytest.mark.parametrize("text", ["inf", "nan", "9999999999.0"])
async def test_one_that_has_ended_when_a_clock_was_ahead(tmp_path: Path, text: str) -> None:
    """Nothing was seen in the future."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        await placed_and_listed(world)
        await world.stop_criproxy()
        (tmp_path / "state" / SEEN).write_text(text)
        past = await run_past(world, owner("past"))
        world.runtime.exit_container(past)

        await world.start_criproxy()
        await world.controller.resync.again()

        await told(world, past)
        await world.poll(lambda: float((tmp_path / "state" / SEEN).read_text()) <= time())


async def test_what_was_seen_is_on_disk_from_the_start_on(tmp_path: Path) -> None:
    """Else what a second start stores would count as seen, if that is killed before it has told of who has ended."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        await world.poll((tmp_path / "state" / SEEN).exists)
        assert world.controller.context.state.node.containers == {}


async def test_one_that_was_known_as_created_and_has_started_and_ended_while_criproxy_was_away(tmp_path: Path) -> None:
    """Who is known to have no place, and not to run, is told of when it has run; once."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        await placed_and_listed(world)
        past, pod = MiniKubelet(world.direct), owner("past")
        key = await past.create(pod, await past.run_sandbox(pod), pod.containers[0])
        await world.controller.resync.again()
        assert known(world, key).missed
        await world.stop_criproxy()
        await past.start(key)
        world.runtime.exit_container(key)

        await world.start_criproxy()
        await world.controller.resync.again()
        await world.restart()
        await world.controller.resync.again()

        text, _ = await told(world, key)
        status = (await world.direct.container_status(key)).status
        assert text.endswith(
            f" ({(status.finished_at - status.started_at) / 1e9:.1f} s); it ended before criproxy saw it"
        )


async def test_one_that_was_known_without_its_place_and_has_ended_while_criproxy_was_away(tmp_path: Path) -> None:
    """The time ends with it, and not with the return of criproxy."""
    async with World(tmp_path, NO_EVENTS, UNTIL_ASKED) as world:
        await placed_and_listed(world)
        past = await run_past(world, owner("past"))
        await world.until(lambda: past in world.controller.node.containers)
        await world.stop_criproxy()
        world.runtime.exit_container(past)

        await world.start_criproxy()
        await world.controller.resync.again()

        text, _ = await told(world, past)
        status = (await world.direct.container_status(past)).status
        assert f" to {timestamp(status.finished_at / 1e9)} (" in text
        lasted_s = (status.finished_at - status.created_at) / 1e9
        assert world.counters.unplaced_s == pytest.approx(lasted_s, abs=1e-5)


async def test_one_that_was_seen_by_a_run_that_was_killed_before_it_was_on_disk(tmp_path: Path) -> None:
    """And that has ended when the next run lists: nobody has told of it, so that one does."""
    disks = Disks(tmp_path / "state")
    world = World(tmp_path, NO_EVENTS, UNTIL_ASKED)
    world.make_store = disks
    async with world:
        await placed_and_listed(world)
        await world.controller.context.state.flush()
        disks.last.stalls = Point.APPLIED
        past = await run_past(world, owner("past"))
        await world.poll(disks.last.stalled.is_set)
        await world.controller.resync.again()
        await world.kill_criproxy(disks.last.die)
        world.runtime.exit_container(past)

        await world.start_criproxy()
        await world.controller.resync.again()

        text, _ = await told(world, past)
        assert text.endswith("; it ended before criproxy saw it")


async def test_one_that_has_ended_before_a_run_that_lists_nothing(tmp_path: Path, slow: Slow) -> None:
    """The runtime does not answer that run, which stores something and ends: the next one tells."""
    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), UNTIL_ASKED) as world:
        seen = await placed_and_listed(world)
        await world.poll((tmp_path / "state" / SEEN).exists)
        await world.stop_criproxy()
        past = await run_past(world, owner("past"))
        world.runtime.exit_container(past)
        slow.hold("ListContainers")
        await world.start_criproxy()
        state = world.controller.context.state
        state.note(state.node.containers[seen], Kind.RESIZED, "something is stored")
        await state.flush()
        await world.stop_criproxy()
        slow.let_go("ListContainers")

        await world.start_criproxy()
        await world.controller.resync.again()

        text, _ = await told(world, past)
        assert text.endswith("; it ended before criproxy saw it")


async def test_nobody_owes_a_place_with_adopt_watch(tmp_path: Path) -> None:
    """It is left alone because the policy file says so."""
    async with World(tmp_path, NO_EVENTS, replace(NO_LOOKS, adopt=Adopt.WATCH)) as world:
        await world.run(owner("first"))

        past = await run_past(world, owner("past"))

        await world.until(lambda: past in world.controller.node.containers)
        assert known(world, past).missed is None


@pytest.mark.parametrize("restarts", [False, True])
async def test_nobody_is_passed_by_while_the_policy_is_none(tmp_path: Path, restarts: bool) -> None:
    """After a change of the policy, who runs stays where it is."""
    none, settings = NonePolicy(StaticOptions()), replace(UNTIL_ASKED, configuration="none")
    async with World(tmp_path, NO_EVENTS, replace(UNTIL_ASKED, configuration="static")) as world:
        first = await placed_and_listed(world)
        await world.controller.policy_switch.change(none, settings)
        await world.kubelet.stop(first)
        await world.until(lambda: not world.controller.policy_switch.active)
        past = await run_past(world, owner("past"))

        if restarts:
            world.use(none, configuration="none")
            await world.restart()
            world.use(STATIC, configuration="static")
            await world.restart()
        else:
            await world.controller.policy_switch.change(STATIC, world._settings)
        await world.until(lambda: past in world.controller.node.grants)

        assert known(world, past).missed is None
