"""State that cannot be stored for its value concerns nobody but its own container."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import Fault
from criproxy.model.record import Kind
from criproxy.model.workload import Pod
from criproxy.node.record.persister import CannotBeStored
from criproxy.node.record.state import NodeState
from criproxy.placement.events import ContainerCreated, ContainerGone, PodCreated
from criproxy.store.store import Store
from tests.node.record.test_persister import EMPTY
from tests.node.record.test_state import creating, done, state_on
from tests.node.world import STATIC, RecordingLog, World, said

TOO_MUCH = 1 << 70
"""Bytes that SQLite has no integer for."""


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[NodeState]:
    """Return a manager of a node with one pod, on a real store."""
    store = Store(tmp_path)
    made = state_on(store, EMPTY, STATIC, RecordingLog())
    await done(made, PodCreated(Pod(key="pod", name="pod", namespace="default")))
    yield made
    await made.close()
    store.close()


async def test_only_its_own_reservation_fails(manager: NodeState) -> None:
    """An owner whose state cannot be stored gets no CPUs; it is no failing disk, and the next one owns as ever."""
    absurd = creating("absurd", 1000)
    absurd = replace(absurd, container=replace(absurd.container, memory_limit_bytes=TOO_MUCH))

    await done(manager, absurd)
    await done(manager, creating("fine", 1000))
    with pytest.raises(CannotBeStored, match="default/pod/absurd") as error:
        await manager._persister.durable("r-absurd")
    await manager._persister.durable("r-fine")
    await done(manager, ContainerGone("r-absurd"))  # as whoever asked for it does

    assert not isinstance(error.value, Fault)  # or some of them would switch the bypass on
    assert manager._persister.error is None
    assert set(manager.node.grants) == {"r-fine"}
    await manager.flush()
    assert manager._persister.left_out == ()


async def test_one_that_shares_goes_on_and_is_told_of_until_it_ends(manager: NodeState) -> None:
    """It waits for nobody; its row is missing, which is said, counted and logged once."""
    absurd = creating("absurd")
    absurd = replace(absurd, container=replace(absurd.container, memory_limit_bytes=TOO_MUCH))

    (decision,) = await done(manager, absurd)
    await manager.flush()
    assert not isinstance(decision, BaseException)
    assert [left.title for left in manager._persister.left_out] == ["default/pod/absurd"]
    await done(manager, ContainerCreated("r-absurd", "id1"))
    for number in range(3):
        await done(manager, PodCreated(Pod(key=f"pod{number}")))
    await manager.flush()

    assert manager._persister.error is None
    assert [left.key for left in manager._persister.left_out] == ["id1"]
    await done(manager, ContainerGone("id1"))
    await manager.flush()
    assert manager._persister.left_out == ()
    assert manager._failures.counts["row"] == 2  # under its reservation, and under its id


async def test_check_names_it(world: World) -> None:
    """`status` and ``--check`` say whose state is missing, and what that means."""
    await world.poll(lambda: world.controller.ready)
    manager = world.controller.context.state
    absurd = creating("absurd")
    await manager.submit(replace(absurd, container=replace(absurd.container, memory_limit_bytes=TOO_MUCH)))
    await manager.flush()

    (problem,) = said(world, "stored")

    assert "default/pod/absurd" in problem


async def test_a_record_that_cannot_be_stored_is_counted(manager: NodeState) -> None:
    """The history is short of it, and nothing else is."""
    await manager.flush()
    manager.note(None, Kind.NODE, "no text: \ud800")
    manager.note(None, Kind.NODE, "a text")
    await manager.flush()

    assert manager._persister.error is None
    assert manager._failures.counts["telling"] == 1
