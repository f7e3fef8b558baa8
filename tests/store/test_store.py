"""The node is remembered over restarts, whatever happens to the disk."""

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container, Desired, Miss, Missed, Pod, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreated, ContainerCreating, Event, PodCreated
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine
from criproxy.store import Kind, Record, Store, database
from criproxy.store import store as store_module
from criproxy.store.database import Database
from criproxy.store.history import find
from criproxy.store.rows import changes, tables
from criproxy.store.schema import FIRST, VERSION
from criproxy.store.store import InUse
from tests.gates import Gate
from tests.placement.lives import live, lives

MACHINE = machine(nodes=2, cores=4)
EMPTY = Node(MACHINE)
POLICY = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0"}))
POD = Pod(key="s", uid="u", name="web", namespace="shop", labels={"app": "web"})
OWNER = Container(key="r1", pod="s", name="main", qos=QosClass.GUARANTEED, cpu_milli=2000, cpu_limit_milli=2000)
SHARER = Container(
    key="r2",
    pod="s",
    name="side",
    desired=Desired(sizes=Sizes(cpu_milli=3000, cpu_quota=CfsQuota(300_000, 100_000)), since_s=1.5, told=True),
    missed=Missed(why=Miss.BYPASSED, since_s=2.5),
)
LIFE: list[Event] = [
    PodCreated(POD),
    ContainerCreating(SHARER),
    ContainerCreating(OWNER),
    ContainerCreated("r1", "id1"),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return a store in a fresh directory."""
    fresh = Store(tmp_path / "state")
    yield fresh
    fresh.close()


async def keep(store: Store, node: Node, *events: Event) -> Node:
    """Step through *events* and save each."""
    for event in events:
        decision = step(node, event, POLICY)
        await store.save(node, decision.node)
        node = decision.node
    return node


def reopened(store: Store) -> Node:
    """What a new process finds."""
    store.close()
    with closing(Store(store.directory)) as again:
        return again.load(MACHINE)


async def test_what_is_equal_is_one_object_after_a_load(store: Store) -> None:
    """Sets, so that comparing containers stays cheap; and names: a key of 64 characters is in three maps."""
    await keep(store, EMPTY, *LIFE, ContainerCreating(replace(SHARER, key="r3", name="more")))
    node = reopened(store)
    containers = node.containers.values()

    assert node.grants["r2"].cpus is node.grants["r3"].cpus
    assert len({id(container.pod) for container in containers} | {id(key) for key in node.pods}) == 1
    for keys in (node.grants, node.applied, (container.key for container in containers)):
        assert {id(key) for key in keys} <= {id(key) for key in node.containers}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lives)
def test_any_life_is_remembered(tmp_path: Path, life: list[Event]) -> None:
    """After every event a new process would find the very same node."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    path.mkdir()
    written = database.Database(path)
    for before, _, after in live(MACHINE, POLICY, life):
        written.save(before, after, [])
        assert written.load(MACHINE) == after
    written.close()


def test_only_what_differs_is_written() -> None:
    """A newcomer that shares is written alone, among however many."""
    node = EMPTY
    for i in range(50):
        node = step(node, ContainerCreating(replace(SHARER, key=f"r{i}", name=f"c{i}")), POLICY).node
    after = step(node, ContainerCreating(replace(SHARER, key="new", name="new")), POLICY).node

    touched = {table.name: found for table in tables() if any(found := changes(table, node, after))}

    assert touched == dict.fromkeys(("containers", "grants", "applied"), (["new"], []))


async def test_a_full_disk_is_told_and_caught_up(store: Store) -> None:
    """A save without space fails with the reason and writes nothing; the next one writes all that is missing."""
    node = await keep(store, EMPTY, PodCreated(POD))
    connection = store._opened()._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    many = {f"p{i}": replace(POD, key=f"p{i}", cgroup_parent="x" * 500) for i in range(50)}
    full = node.replace(pods=many)
    with pytest.raises(StoreError, match="full"):
        await store.save(node, full, [Record(0, "k", "shop/web/main", Kind.GRANTED, ("r",), "k")])
    assert (store.load(MACHINE), await store.read(find, "k")) == (node, [])

    connection.execute("PRAGMA max_page_count = 100000")
    await store.save(node, full)

    assert reopened(store) == full


async def test_a_read_only_disk_is_told(store: Store) -> None:
    """A save that may not write fails with the reason."""
    store._opened()._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError, match=r"criproxy.db cannot be used: attempt to write a readonly database"):
        await store.save(EMPTY, EMPTY.replace(pods={"s": POD}))


async def test_a_save_outlives_its_caller(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the node has become is written even if the call that caused it is cancelled."""
    monkeypatch.setattr(store_module, "CLOSE_S", 60.0)  # however slow the disk is
    saving = asyncio.ensure_future(store.save(EMPTY, EMPTY.replace(pods={"s": POD})))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving

    assert reopened(store).pods == {"s": POD}


async def test_a_closed_store_refuses(store: Store) -> None:
    """During a shutdown a late save is an error, not a hang."""
    store.close()
    with pytest.raises(StoreError, match="shutting down"):
        await store.save(EMPTY, EMPTY)


async def test_a_disk_that_hangs_at_the_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for a moment only; the directory stays taken, since the thread may still write."""
    monkeypatch.setattr(store_module, "CLOSE_S", 0.01)
    let_go = Gate()
    monkeypatch.setattr(Database, "read", lambda *_: let_go.wait())
    reading = asyncio.ensure_future(store.read(find, "a"))
    await asyncio.sleep(0)

    store.close()

    assert not let_go.is_set()
    with pytest.raises(InUse):
        Store(store.directory)
    let_go.set()
    await reading


def test_directory_is_private(tmp_path: Path) -> None:
    """The directory is made, and nobody else may look into it, however it was before."""
    path = tmp_path / "a" / "state"
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o700

    path.chmod(0o755)
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o700


def test_two_stores_on_one_directory(store: Store) -> None:
    """A second user of the directory is refused with the process that has it, and may have it afterwards."""
    with pytest.raises(
        StoreError, match=rf"in use by another criproxy \(process {os.getpid()}\); stop that one or choose"
    ):
        Store(store.directory)

    store.close()
    Store(store.directory).close()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    """After kill -9 the state is there and can be opened at once."""
    script = (
        "import os, signal; from pathlib import Path; from criproxy.store import Store\n"
        f"Store(Path({str(tmp_path)!r})); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    assert (tmp_path / "criproxy.db").exists()

    Store(tmp_path).close()


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    """A path through a file is refused with the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"the state directory .*file/state cannot be used: Not a directory"):
        Store(tmp_path / "file" / "state")
    (tmp_path / "state/criproxy.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="unable to open database file"):
        Store(tmp_path / "state")


def replaced(directory: Path) -> None:
    """Another directory takes the place, as by a mount."""
    directory.rename(directory.with_name("elsewhere"))
    directory.mkdir()


@pytest.mark.parametrize(
    "lose",
    [shutil.rmtree, replaced, lambda directory: (directory / "lock").unlink()],
    ids=["removed", "replaced", "lock"],
)
async def test_a_state_that_goes_while_it_is_used_is_told_and_made_anew(
    store: Store, lose: Callable[[Path], None]
) -> None:
    """Nothing is written where nobody will read it: one save fails and says why, the next one writes all there is."""
    node = await keep(store, EMPTY, *LIFE)
    lose(store.directory)

    with pytest.raises(StoreError, match="was removed or replaced while criproxy used it"):
        await store.save(node, node)
    await store.save(node, node)

    with pytest.raises(StoreError, match="in use by another criproxy"):
        Store(store.directory)
    assert reopened(store) == node


async def test_a_state_that_another_took_over_is_left_alone(store: Store) -> None:
    """Where the directory went and another process has the new one, each save says so."""
    node = await keep(store, EMPTY, *LIFE)
    shutil.rmtree(store.directory)
    with closing(Store(store.directory)) as other:
        for said in ("was removed or replaced", "in use by another criproxy", "in use by another criproxy"):
            with pytest.raises(StoreError, match=said):
                await store.save(node, node)
        assert other.load(MACHINE) == EMPTY


def spoil_text(path: Path) -> None:
    """Something that is no database at all."""
    path.write_text("this is no database, but long enough to look like one\n" * 100)


def spoil_pages(path: Path) -> None:
    """A database with overwritten pages."""
    content = bytearray(path.read_bytes())
    content[4096 : 3 * 4096] = b"\xa5" * (2 * 4096)
    path.write_bytes(content)


def spoil_columns(path: Path) -> None:
    """Another program's database of the same name."""
    path.unlink()
    execute(path, "CREATE TABLE pods (a, b)")


def execute(path: Path, statement: str) -> None:
    """Change the database behind the store's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


NEWER = f"PRAGMA user_version = {VERSION + 1}"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(spoil_text, "file is not a database", id="no-database"),
        pytest.param(spoil_pages, "damaged", id="damaged"),
        pytest.param(partial(os.truncate, length=0), "it is empty", id="empty"),
        pytest.param(NEWER, f"version {VERSION + 1} is newer than {VERSION}, the newest", id="newer"),
        pytest.param("PRAGMA user_version = 3", f"version 3 is older than {FIRST}, the oldest", id="older"),
        pytest.param("DROP TABLE grants", "no such table: grants", id="other-tables"),
        pytest.param(
            "INSERT INTO grants VALUES ('c', 'all of them', '', '', '', '', '', 'left')",
            "table grants cannot be read",
            id="unreadable-row",
        ),
        pytest.param(
            """UPDATE pods SET labels = '{"app": 1}'""",
            "table pods cannot be read: .* is not a map of strings",
            id="no-labels",
        ),
        pytest.param(spoil_columns, "table pods already exists", id="somebody-elses"),
    ],
)
async def test_an_unusable_database_is_set_aside(
    store: Store, spoil: str | Callable[[Path], None], reason: str
) -> None:
    """It is kept under a dated name, the reason is told, and a fresh one is used."""
    await keep(store, EMPTY, *LIFE)
    store.close()
    file = store.directory / "criproxy.db"
    execute(file, spoil) if isinstance(spoil, str) else spoil(file)

    again = Store(store.directory)

    assert again.set_aside is not None
    assert re.search(reason, again.set_aside)
    (kept,) = store.directory.glob("criproxy.db.*Z")
    assert kept.name in again.set_aside
    assert again.load(MACHINE) == EMPTY
    await keep(again, EMPTY, *LIFE)
    again.close()


async def test_databases_set_aside_at_once_are_all_kept(store: Store) -> None:
    """A second one in the same second does not replace the first."""
    store.close()
    for _ in range(3):
        execute(store.directory / "criproxy.db", NEWER)
        Store(store.directory).close()

    assert len(list(store.directory.glob("criproxy.db.*Z*"))) == 3
