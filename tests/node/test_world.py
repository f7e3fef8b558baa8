"""`World`, which most tests of the controller use: a test that fails in it ends at once and leaves nothing behind."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.store import store as store_module
from criproxy.store.store import Store
from tests.node import world as world_module
from tests.node.record.test_disk import SlowDisk
from tests.node.world import World, owner

LIMIT_S = 60.0


class Planted(Exception):
    """The failure of a test."""


def ended(world: World) -> bool:
    """Whether nobody serves calls any more."""
    return world.runtime._server is None and not world.proxy.links


async def failing(world: World, disk: SlowDisk) -> None:
    """Fail while the disk is held up, and a create waits for it."""
    world.make_store = lambda: disk
    async with world:
        disk.answers.clear()
        creating = asyncio.create_task(world.run(owner("held")))
        await world.until(lambda: bool(world.owned()))
        creating.cancel()
        raise Planted


async def test_a_failure_ends_what_holds_up_the_disk(tmp_path: Path) -> None:
    """The state is stored and the directory is free, as at any other end."""
    async with asyncio.timeout(LIMIT_S):
        world, disk = World(tmp_path), SlowDisk(tmp_path / "state")
        with pytest.raises(Planted):
            await failing(world, disk)

        assert ended(world)
        assert disk.answers.is_set()
        Store(tmp_path / "state").close()


async def test_a_failure_does_not_wait_for_an_end_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the test is what is raised, and the runtime ends all the same."""
    monkeypatch.setattr(world_module, "ENDING_S", 1.0)
    monkeypatch.setattr(store_module, "CLOSE_S", 0.05)
    async with asyncio.timeout(LIMIT_S):
        world, disk = World(tmp_path), SlowDisk(tmp_path / "state")
        disk.answers = threading.Event()  # nobody opens it
        disk.answers.set()
        with pytest.raises(Planted):
            await failing(world, disk)

        assert ended(world)
        disk.answers.set()


async def test_what_has_begun_ends_if_the_rest_cannot_begin(tmp_path: Path) -> None:
    """No runtime is left to be ended by Python in some later test."""
    world = World(tmp_path)
    with closing(Store(tmp_path / "state")), pytest.raises(StoreError, match="in use"):
        await world.__aenter__()

    assert world.runtime._server is None
