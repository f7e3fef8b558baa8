"""Real disks that are full or read-only: placing goes on as onError says, and all is written when they are back."""

import asyncio
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.node.settings import OnError, Promote, Settings
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from tests.disks import fill, free, remount
from tests.gates import Gate
from tests.node.world import FAST, PATIENT_STORE, World, owner, refusal, said, sharer, situation

QUICK = replace(FAST, store=replace(PATIENT_STORE, retry_pause_s=0.05, retry_limit_s=0.1))
REFUSE = replace(QUICK, on_error=OnError.REFUSE)


async def back(world: World) -> None:
    """Wait until the controller says that the disk works."""
    while world.controller.problem:  # noqa: ASYNC110 (health is asked for, as by Kubernetes)
        await asyncio.sleep(0.01)


async def test_on_a_full_disk_only_what_needs_it_is_refused(tmp_path: Path, disk: Path) -> None:
    """Running containers, ends and lists go on; the kubelet reads the reason; space heals it without any call."""
    async with World(tmp_path, settings=REFUSE) as world:
        first = await world.run(owner("first", 1))
        shared = await world.run(sharer("shared"))
        fill(disk)

        assert (await refusal(world.run(owner("second", 1)), "disk is full")).code is StatusCode.UNAVAILABLE
        assert "disk is full" in str(world.controller.problem)
        await world.kubelet.stop(first)
        await world.until(lambda: world.cpus(shared) == "0-3")

        free(disk)
        await back(world)
        await world.stop_criproxy()
        with_store = Store(disk)
        try:
            node = with_store.load(machine(nodes=1, cores=4, threads=1))
        finally:
            with_store.close()
        assert node.exclusive_cpus == frozenset()
        assert {key: grant.cpus for key, grant in node.grants.items()} == {shared: {0, 1, 2, 3}}
        await world.start_criproxy()


async def test_on_a_full_disk_newcomers_share(tmp_path: Path, disk: Path) -> None:
    """By default pods start all the same, never on owned CPUs; with space, who comes next owns again."""
    stays = replace(QUICK, promote=Promote.OFF)
    async with World(tmp_path, settings=stays) as world:
        first = await world.run(owner("first", 2))
        fill(disk)
        second = await world.run(owner("second", 1))
        assert (world.cpus(first), world.cpus(second)) == ("1-2", "0,3")

        free(disk)
        await back(world)

        third = await world.run(owner("third", 1))
        assert world.cpus(third) == "3"
        await world.until(lambda: world.cpus(second) == "0")


async def test_a_start_on_a_read_only_disk(tmp_path: Path, disk: Path) -> None:
    """Criproxy comes up, says what is wrong, and keeps its state once the disk can be written."""
    remount(disk, "ro")
    async with World(tmp_path, settings=REFUSE) as world:
        await refusal(world.run(owner("first", 2)), r"[Rr]ead-only")
        assert "ead-only" in str(world.controller.problem)

        remount(disk, "rw")
        await back(world)

        first = await world.run(owner("second", 2))
        assert world.cpus(first) == "1-2"
        await world.restart()
        assert world.owned() == {1, 2}


async def test_a_state_that_goes_is_noticed_though_nothing_happens(tmp_path: Path) -> None:
    """No call has to come before criproxy says that its state was removed, and stores all there is anew."""
    async with World(tmp_path, settings=replace(QUICK, resync_interval_s=0.05)) as world:
        first = await world.at_rest(owner("first", 2))
        (tmp_path / "state").rename(tmp_path / "removed")  # at once: criproxy may be writing, and makes it anew
        shutil.rmtree(tmp_path / "removed")

        await world.poll(lambda: "state is stored again" in world.log.events())
        assert "state cannot be stored; criproxy continues in memory" in world.log.events()

        await world.restart()
        assert world.cpus(first) == "1-2"
        assert world.owned() == {1, 2}


@pytest.mark.parametrize("settings", [pytest.param(REFUSE, id="refuse"), pytest.param(QUICK, id="share")])
async def test_a_full_disk_is_no_failure_of_criproxy(tmp_path: Path, disk: Path, settings: Settings) -> None:
    """The notice about the state on disk says what is wrong, and nothing is left of it when there is space again."""
    async with World(tmp_path, settings=settings) as world:
        first = await world.run(owner("first", 1))
        fill(disk)
        for name in ("second", "third"):  # at the second one, it is known already that the disk is full
            with suppress(RuntimeCallError):
                await world.run(owner(name, 1))
        kinds = {notice.kind for notice in situation(world.controller).notices if notice.wrong}
        assert ("store" in kinds, "failure" in kinds) == (True, False)

        free(disk)
        await back(world)
        await world.poll(lambda: not said(world))

        failures = world.controller.context.failures
        assert (failures.recent(), failures.counts["call"]) == ([], 0)
        assert world.counters.fallbacks.total() == 2
        assert world.cpus(first) == "1"


async def test_files_that_are_removed_at_rest_are_missed_before_the_next_change(tmp_path: Path) -> None:
    """The state is written again; the next container with exclusive CPUs does not pay for it."""
    settings = replace(FAST, answer_check_s=0.01, resync_interval_s=3600.0, unknown_pause_s=3600.0)
    async with World(tmp_path, settings=settings) as world:
        owned = await world.at_rest(owner("owned", 1))
        await world.controller.context.state.find_history("owned")  # also what is written later

        for path in (tmp_path / "state").glob("criproxy.db*"):
            path.unlink()
        await world.poll(lambda: "state is stored again" in world.log.events())

        assert situation(world.controller).is_stored
    assert set(Store(tmp_path / "state").load(machine()).grants) == {owned}


class SlowDisk(Store):
    """A disk that does not answer while `answers` is cleared."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.answers: threading.Event = Gate()
        self.answers.set()

    def _save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        self.answers.wait()
        super()._save(before, after, records)
