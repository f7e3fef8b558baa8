"""A list of the runtime lacks containers that run, as it may for a moment after a restart: they keep their places."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import StatusCode
from criproxy.node.sync.resync import Resync
from lab.emulator.runtime import EmbeddedRuntime
from lab.kubelet.kubelet import MiniKubelet
from tests.node.sync.test_exit_events import no_pass
from tests.node.test_in_flight import group_of
from tests.node.world import KEEPING, NO_EVENTS, NO_LOOKS, Slow, World, owner, refusal, said, sharer

LIMIT_S = 60.0
OFTEN = replace(NO_LOOKS, unknown_pause_s=0.05)
"""It asks for lists soon after one that lacks somebody, too."""


def ids(world: World) -> list[str]:
    """All containers and sandboxes."""
    records = world.runtime.core.records
    return [*records.containers, *records.sandboxes]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not hang answers in time, and criproxy looks only where a test wants it to."""
    for limit in ("ends.ASK_S", "ends.LOCK_S", "outcomes.ASK_S"):
        monkeypatch.setattr(f"criproxy.node.sync.{limit}", LIMIT_S)
    monkeypatch.setattr("criproxy.node.cgroups._READ_S", LIMIT_S)
    no_pass(monkeypatch)


async def compared(world: World) -> None:
    """Let criproxy ask for new lists, and evaluate them."""
    await world.controller.resync.again(thorough=False)


def without_cgroups(world: World) -> World:
    """The same with a runtime whose cgroups cannot be found on this machine."""
    world.runtime = EmbeddedRuntime(world.runtime.path, replace(world.runtime.options, host_root=None))
    return world


def unlisted(world: World) -> list[str]:
    """What ``status --check`` says of it."""
    return said(world, "lists do not have")


async def test_nobody_else_gets_their_cpus(tmp_path: Path) -> None:
    """Containers and sandboxes are missing: the next pod gets other CPUs, and all is well with the next list."""
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        first = await world.at_rest(owner("first"))
        had = world.cpus(first)
        world.runtime.leave_out(*ids(world))

        await compared(world)

        assert first in world.controller.node.grants
        second = await world.run(owner("second"))
        assert not set(world.cpus(second)) & set(had)
        await world.poll(lambda: bool(unlisted(world)))
        assert "default/first/main" in unlisted(world)[0]

        world.runtime.leave_out()
        await compared(world)
        assert not unlisted(world)
        assert world.cpus(first) == had
        assert not world.counters.adoptions


async def test_a_full_node_stays_full(tmp_path: Path) -> None:
    """Before criproxy refuses a create it lists once more: that list may be wrong, too."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        first = await world.at_rest(owner("first", 3))
        world.runtime.leave_out(*ids(world))

        assert (await refusal(world.run(owner("second", 3)))).code is StatusCode.RESOURCE_EXHAUSTED
        assert world.controller.node.grants.keys() == {first}


@pytest.mark.parametrize("has_cgroups", [True, False], ids=["cgroups", "no-cgroups"])
async def test_a_start_with_such_a_list(tmp_path: Path, has_cgroups: bool) -> None:
    """What the last run has stored keeps its place: the runtime is asked for each one that its list lacks."""
    world = World(tmp_path, NO_EVENTS, NO_LOOKS)
    async with world if has_cgroups else without_cgroups(world):
        first = await world.at_rest(owner("first"))
        await world.stop_criproxy()
        world.runtime.leave_out(*ids(world))

        await world.start_criproxy()
        second = await world.run(owner("second"))

        assert (world.cpus(first), world.cpus(second)) == ("1", "2")
        assert first in world.controller.node.grants


async def test_where_no_cgroup_is_found_its_status_counts(tmp_path: Path) -> None:
    """It runs: it keeps its place. It is not found: it is forgotten at once."""
    async with without_cgroups(World(tmp_path, NO_EVENTS, NO_LOOKS)) as world:
        runs, gone = await world.run(owner("runs")), await world.at_rest(owner("gone"))
        world.runtime.leave_out(*ids(world))
        world.runtime.core.remove_container(world.runtime.core.records.container(gone))

        await compared(world)

        assert world.controller.node.grants.keys() == {runs}
        assert world.counters.exits == {"lists": 1}


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_one_of_which_nothing_can_be_learnt_is_forgotten_in_the_end(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cgroup, no status: lists lack it again and again, and that must do. Meanwhile others come and go."""
    monkeypatch.setattr("criproxy.node.sync.ends.ASK_S", 0.05)
    slow, go_on, due = Slow(), asyncio.Event(), Resync._due
    options = replace(NO_EVENTS, latency_s=slow)
    settings = replace(NO_LOOKS, unknown_pause_s=0.5)

    async def due_later(self: Resync) -> None:
        await go_on.wait()
        await due(self)

    monkeypatch.setattr(Resync, "_due", due_later)
    async with without_cgroups(World(tmp_path, options, settings)) as world:
        broken = await world.at_rest(owner("broken"))
        world.runtime.leave_out(*ids(world))
        if how == "fails":
            world.runtime.lose_status(broken)
        else:
            slow["ContainerStatus"] = 2 * LIMIT_S

        while not world.controller.context.in_flight.unlisted():  # it is another list's turn if a question came late
            await compared(world)
        assert broken in world.controller.node.grants
        await world.run(sharer("other"))
        assert broken in world.controller.node.grants

        go_on.set()
        await world.until(lambda: broken not in world.controller.node.containers)


@contextmanager
def hanging(file: Path) -> Iterator[None]:
    """Whoever reads that file waits until the end."""
    file.unlink()
    os.mkfifo(file)
    try:
        yield
    finally:
        file.replace(file.with_suffix(".former"))
        os.close(os.open(file.with_suffix(".former"), os.O_RDWR | os.O_NONBLOCK))


async def test_a_cgroup_that_does_not_answer_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime is asked instead, and the place is kept."""
    monkeypatch.setattr("criproxy.node.cgroups._READ_S", 0.5)
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        first = await world.at_rest(owner("first"))
        folder = group_of(tmp_path, first)
        world.runtime.leave_out(*ids(world))
        threads = threading.active_count()
        with hanging(folder / "cgroup.procs"):
            await compared(world)

            assert first in world.controller.node.grants
            await world.run(owner("second"))
            assert threading.active_count() <= threads + 2


async def test_kept_cpus_of_a_pod_stay_with_it(tmp_path: Path) -> None:
    """Its container has ended and will be restarted; its sandbox is missing in a list, and is there."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS, KEEPING) as world:
        pod = owner("first")
        sandbox_id, containers = await world.kubelet.run_pod(pod)
        await world.rested()
        await world.kubelet.stop(containers["main"])
        await world.rested()
        assert world.controller.node.kept
        world.runtime.leave_out(*ids(world))

        await compared(world)

        second = await world.run(owner("second"))
        assert world.cpus(second) == "2"
        again = await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
        await world.kubelet.start(again)
        assert world.cpus(again) == "1"


async def test_kept_cpus_of_a_sandbox_that_is_gone_are_free(tmp_path: Path) -> None:
    """Lists lack it, and the runtime does not find it."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS, KEEPING) as world:
        sandbox_id, containers = await world.kubelet.run_pod(owner("first"))
        await world.rested()
        await world.kubelet.stop(containers["main"])
        await world.rested()
        await MiniKubelet(world.direct).remove_pod(sandbox_id)

        await compared(world)

        assert not world.controller.node.kept
        assert not world.controller.node.pods


async def test_who_runs_though_the_runtime_has_forgotten_it_keeps_its_place(tmp_path: Path) -> None:
    """Neither a list nor a status has it; its processes run all the same, and when they have ended it is forgotten."""
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        first = await world.at_rest(owner("first"))
        folder = group_of(tmp_path, first)
        del world.runtime.core.records.containers[first]

        await compared(world)
        world.controller.outcomes.ask(first)
        await world.poll(lambda: world.controller.context.in_flight.is_left(first))
        assert first in world.controller.node.grants

        (folder / "cgroup.procs").write_text("")
        await world.until(lambda: first not in world.controller.node.containers)
