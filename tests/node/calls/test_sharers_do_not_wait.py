"""Who only shares waits for no disk, whatever is on its way there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.store.store import Store
from tests.node.record.test_disk import SlowDisk
from tests.node.world import FAST, NO_EVENTS, World, owner, sharer

QUIET = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0, resync_interval_s=600.0, unknown_pause_s=3600.0)


class StalledDisk(SlowDisk):
    """Says when somebody waits for it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.stalls = threading.Event()

    def _save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        if not self.answers.is_set():
            self.stalls.set()
        super()._save(before, after, records)


def flush(world: World) -> None:
    """Let the manager write its history."""
    world.controller.context.state.note(None, Kind.NODE, "something to write")


def look(world: World) -> None:
    """Let it see whether the disk works, as it does from time to time."""
    world.controller.context.persister.check_soon()


@asynccontextmanager
async def stalled(world: World, directory: Path, begin: Callable[[World], None] = flush) -> AsyncIterator[StalledDisk]:
    """Begin a flush of the history, or what *begin* does, on a disk that does not answer from then on."""
    await world.stop_criproxy()
    disk = StalledDisk(directory / "state")
    world.make_store = lambda: disk
    await world.start_criproxy()
    await world.run(sharer("before"))
    await world.poll(lambda: world.controller.ready)
    await world.rested()
    disk.answers.clear()
    begin(world)
    await world.poll(disk.stalls.is_set)
    try:
        yield disk
    finally:
        disk.answers.set()  # a test that fails ends, too


@pytest.mark.parametrize("begin", [flush, look])
async def test_a_pod_that_shares_runs_while_the_history_is_flushed(
    tmp_path: Path, begin: Callable[[World], None]
) -> None:
    """From its sandbox to its start, and the next one too; at the end all of it is on disk."""
    async with World(tmp_path, NO_EVENTS, QUIET) as world, stalled(world, tmp_path, begin) as disk:
        first = await world.run(sharer("first"))
        second = await world.run(sharer("second"))

        assert not disk.answers.is_set()
        disk.answers.set()
        await world.rested()
        await world.stop_criproxy()
        world.make_store = lambda: Store(tmp_path / "state")
        await world.start_criproxy()
        assert {first, second} <= world.controller.node.grants.keys()


async def test_one_that_shares_ends_and_comes_again_while_the_history_is_flushed(tmp_path: Path) -> None:
    """Neither its end nor what comes after it waits."""
    async with World(tmp_path, NO_EVENTS, QUIET) as world, stalled(world, tmp_path) as disk:
        sandbox_id, ids = await world.kubelet.run_pod(sharer("first"))
        await world.kubelet.stop(ids["main"])
        await world.kubelet.remove(ids["main"])
        await world.kubelet.remove_pod(sandbox_id)
        second = await world.run(sharer("second"))

        assert not disk.answers.is_set()
        assert set(world.controller.node.grants) >= {second}
        assert ids["main"] not in world.controller.node.containers
        disk.answers.set()


async def test_an_owner_waits_until_its_place_is_stored(tmp_path: Path) -> None:
    """It takes something away from others: the runtime hears of it when the disk has it, whoever did not wait."""
    async with World(tmp_path, NO_EVENTS, QUIET) as world, stalled(world, tmp_path) as disk:
        held = asyncio.create_task(world.run(owner("owner", 1)))
        await world.until(lambda: bool(world.owned()))
        await world.client.version()

        names = [one.name for one in world.runtime.core.records.containers.values()]
        assert not [name for name in names if "owner" in name]
        disk.answers.set()

        assert world.cpus(await held) == "1"
