"""The disk hangs while a try begins, is kept or ends: nothing else waits, and what was refused stays refused."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.node.configuration import in_place, try_out
from criproxy.node.settings import StoreLimits
from criproxy.store.configurations import TRIED_NAME, read_tried
from criproxy.store.store import Store
from tests.clocks import skip
from tests.node.configuration.tried_node import FOUR, LIMIT_S, MOVES, STATIC, Node, moved
from tests.node.world import FAST, World

SILENT_S = 30.0
PATIENT = replace(FAST, store=StoreLimits(timeout_s=3600.0))
"""The database is no part of these tests: a real disk may take as long as it does, also while time is skipped."""
NO_ANSWER = r"tried\.json cannot be written: the disk has not answered for 30 s"


class Disk:
    """A disk that does not answer for one file or folder."""

    def __init__(self) -> None:
        self.fsync = os.fsync
        self.hangs_at = Path()
        self.reached = threading.Event()
        self._answers = threading.Event()

    def sync(self, descriptor: int) -> None:
        """What replaces `os.fsync`."""
        if Path(f"/proc/self/fd/{descriptor}").readlink() == self.hangs_at:
            self.reached.set()
            self._answers.wait()
        self.fsync(descriptor)

    def hang(self, at: Path) -> None:
        """From now on, a sync of *at* does not return."""
        self.hangs_at = at
        self.reached.clear()
        self._answers.clear()

    async def is_silent(self) -> None:
        """Somebody waits for that sync, and has waited as long as criproxy does."""
        assert await asyncio.to_thread(self.reached.wait, LIMIT_S)
        skip(SILENT_S)

    def answer(self) -> None:
        """All is as before."""
        self.hangs_at = Path()
        self._answers.set()


async def refused(disk: Disk, call: Coroutine[object, object, object]) -> None:
    """*call* is refused, because the disk does not answer."""
    asking = asyncio.create_task(call)
    await disk.is_silent()
    with pytest.raises(StoreError, match=NO_ANSWER):
        await asking


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """One that answers in the end."""
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.sync)
    yield made
    made.answer()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> AsyncIterator[Node]:
    """One with the static policy, and less patience with the file of a try than with the database."""
    monkeypatch.setattr(try_out, "SHORTEST_TRY_S", 0.01)
    monkeypatch.setattr(in_place, "RETRY_S", 0.02)
    (tmp_path / "policy.yaml").write_text(STATIC)
    world = World(tmp_path, settings=PATIENT)
    made = Node(tmp_path, world, FOUR, lambda: Store(tmp_path / "state", may_fail=True))
    async with world:
        await made.begun()
        in_force = world.controller.context.in_force
        in_force.settings = replace(in_force.settings, store=StoreLimits(timeout_s=SILENT_S))
        yield made
        disk.answer()


WHERE = pytest.mark.parametrize("at", [f"{TRIED_NAME}.new", "."], ids=["before-it-takes-effect", "after-that"])
"""Where a write of the file may hang, below the state directory."""


@WHERE
async def test_a_try_is_refused(node: Node, first: str, disk: Disk, at: str) -> None:
    """Nobody waits behind it; what the disk does late is undone, and the next try is as good as any."""
    disk.hang(node.state / at)

    await refused(disk, node.tries(MOVES))

    assert node.trial is None
    assert await node.reload.command({})
    (notice,) = [each.text for each in node.notices() if each.kind == "try-problem"]
    assert "the disk has not answered for 30 s" in notice
    asking = asyncio.create_task(node.tries(MOVES))
    await node.world.poll(node.try_out.in_place._disk.locked)  # it waits for the write that hangs
    skip(SILENT_S)
    with pytest.raises(StoreError, match=NO_ANSWER):
        await asking

    disk.answer()
    await node.world.poll(lambda: "try-problem" not in node.kinds())
    assert not [file.name for file in node.state.iterdir() if file.name.startswith(TRIED_NAME)]
    assert node.world.cpus(first) == "1"
    await node.tries(MOVES)
    await node.at(first, "2")


@WHERE
async def test_a_try_is_not_kept(node: Node, disk: Disk, at: str) -> None:
    """It goes on as what it was: the disk says so, too, as soon as it answers, and a restart still ends it."""
    first = await moved(node)
    before = read_tried(node.state)
    disk.hang(node.state / at)

    await refused(disk, node.try_out.keep({}))

    disk.answer()
    await node.world.poll(lambda: "try-problem" not in node.kinds())
    assert read_tried(node.state) == before
    node.time_is_over_at_start()
    await node.restart()
    await node.at(first, "1")


async def test_a_kept_configuration_comes_back(node: Node, first: str, disk: Disk) -> None:
    """In time; the disk has it when it answers."""
    await node.tries(MOVES)
    await node.try_out.keep({})
    kept = node.hash
    await node.tries('policy: static\nreservedCpus: "0-2"\napply: all\n')
    await node.at(first, "3")
    disk.hang(node.state / f"{TRIED_NAME}.new")

    node.time_is_over()

    await node.at(first, "2")
    await disk.is_silent()
    await node.world.poll(lambda: "try-problem" in node.kinds())
    assert node.hash == kept
    disk.answer()
    await node.world.poll(lambda: "try-problem" not in node.kinds())
    tried = read_tried(node.state)
    assert tried is not None
    assert tried.is_kept
    assert tried.good.source == "/root/new.yaml"


async def test_a_start_does_not_begin_what_was_refused(node: Node, first: str, disk: Disk) -> None:
    """The disk had it in the end, and the machine lost power before criproxy could remove it."""
    disk.hang(node.state)
    await refused(disk, node.tries(MOVES))
    written = (node.state / TRIED_NAME).read_text()
    disk.answer()
    await node.world.poll(lambda: "try-problem" not in node.kinds())
    await node.world.stop_criproxy()
    (node.state / TRIED_NAME).write_text(written)

    await node.start()

    assert node.trial is None
    await node.is_back()
    assert node.world.cpus(first) == "1"
