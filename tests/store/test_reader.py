"""The database can be read beside the one who has it, and without anybody, and nothing changes by that."""

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.workload import Pod
from criproxy.simulate.hosts import machine
from criproxy.store import Kind, Record, Store
from criproxy.store.history import find, refused_since, titles
from criproxy.store.holder import holding
from criproxy.store.reader import open_reader
from criproxy.store.schema import VERSION
from criproxy.store.store import LOCK_NAME
from tests.disks import small_disk

MACHINE = machine()
NODE = Node(MACHINE, pods={"s": Pod(key="s", name="web", namespace="shop")}, released="by hand")
RECORD = Record(12.5, "0a1b", "shop/web/main", Kind.STARTED, ("it is running",), "r-1")


async def filled(directory: Path) -> Store:
    """A store with `NODE` and `RECORD`."""
    store = Store(directory)
    await store.save(Node(MACHINE), NODE, [RECORD])
    return store


def digest(directory: Path) -> tuple[bytes, int]:
    """What must not change."""
    path = directory / "criproxy.db"
    return path.read_bytes(), path.stat().st_mtime_ns


def touch(directory: Path, at_s: float) -> None:
    """Make the files as new as *at_s* says."""
    for part in directory.glob("criproxy.db*"):
        os.utime(part, (at_s, at_s))


async def test_while_it_is_in_use(tmp_path: Path) -> None:
    """What the daemon has written is seen at once, and the daemon goes on writing."""
    store = await filled(tmp_path)
    with open_reader(tmp_path) as reader:
        assert (reader.node(MACHINE), find(reader.connection, "0a")) == (NODE, [RECORD])
        assert titles(reader.connection) == ["shop/web/main"]
        await store.save(NODE, Node(MACHINE), [])
        assert reader.node(MACHINE) == NODE  # all of one moment
    with open_reader(tmp_path) as reader:
        assert reader.node(MACHINE) == Node(MACHINE)
    store.close()


async def test_after_its_end(tmp_path: Path) -> None:
    """What was left is read; no byte of it changes, and a daemon that starts meanwhile is not kept from it."""
    (await filled(tmp_path)).close()
    before = digest(tmp_path)
    with open_reader(tmp_path) as reader:
        assert reader.node(MACHINE) == NODE
        assert before[1] / 1e9 == pytest.approx(reader.saved_s, abs=60)
        Store(tmp_path).close()
    assert digest(tmp_path)[0] == before[0]


async def test_a_write_that_fails_does_not_make_the_state_newer(tmp_path: Path) -> None:
    """It is as old as the last write that succeeded, whenever its files were touched."""
    (await filled(tmp_path)).close()
    with open_reader(tmp_path) as reader:
        saved_s = reader.saved_s
    touch(tmp_path, 2e9)

    with open_reader(tmp_path) as reader:
        assert reader.saved_s == saved_s < 1.9e9


async def test_who_was_refused(tmp_path: Path) -> None:
    """With the last reason and how often, the newest first, without those that were placed afterwards."""
    store = Store(tmp_path)
    told = [
        ("web", Kind.REFUSED, 10.0, "too large"),
        ("old", Kind.REFUSED, 1.0, "too large"),
        ("api", Kind.REFUSED, 11.0, "too large"),
        ("web", Kind.REFUSED, 12.0, "still too large"),
        ("api", Kind.GRANTED, 13.0, "it fits"),
        ("db", Kind.REFUSED, 14.0, "too large"),
    ]
    await store.save(NODE, NODE, [Record(at_s, "r", name, kind, (text,), "r") for name, kind, at_s, text in told])
    with open_reader(tmp_path) as reader:
        found = refused_since(reader.connection, 5.0)
    store.close()

    assert found == [("db", "too large", 1, 14.0), ("web", "still too large", 2, 12.0)]


READ = (
    "import sys; from pathlib import Path; from criproxy.store.history import titles\n"
    "from criproxy.store.reader import open_reader\n"
    "with open_reader(Path(sys.argv[1])) as reader: print(titles(reader.connection))"
)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A state directory on a read-only disk is read, too."""
    asyncio.run(filled(tmp_path)).close()
    read_only = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null'
    if subprocess.run(["unshare", "-m", "sh", "-c", read_only, "-", str(tmp_path)], check=False).returncode:
        pytest.skip("needs the right to mount")
    script = f'{read_only}; exec "$2" -c "$3" "$1"'
    command = ["unshare", "-m", "sh", "-c", script, "-", str(tmp_path), sys.executable, READ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.stdout == "['shop/web/main']\n", done.stderr


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_of_another_version(tmp_path: Path, version: int) -> None:
    """Older or newer, it is not guessed at and not migrated; the sentence has both versions."""
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "criproxy.db")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = digest(tmp_path)
    said = rf"is of version {version}, and this criproxy reads version {VERSION}"
    with pytest.raises(StoreError, match=said), open_reader(tmp_path):
        pass
    assert digest(tmp_path) == before


def test_where_there_is_none(tmp_path: Path) -> None:
    """Nothing is made where nothing is."""
    with pytest.raises(StoreError, match="criproxy has not run with this state directory"), open_reader(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
def test_what_is_no_database(tmp_path: Path, content: bytes) -> None:
    """The reason is told, and the file is left for the daemon to set aside."""
    (tmp_path / "criproxy.db").write_bytes(content)
    with pytest.raises(StoreError), open_reader(tmp_path):
        pass
    assert (tmp_path / "criproxy.db").read_bytes() == content


# ---------------------------------------------------------------- a daemon that does not answer


def test_a_lock_on_another_disk_is_no_lock_of_this_state(tmp_path: Path) -> None:
    """/proc/locks has inode numbers, which are the same on two new disks; the process has only its own file open."""
    with ExitStack() as disks:
        locked, free = (disks.enter_context(small_disk(tmp_path / name)) for name in ("locked", "free"))
        files = [disks.enter_context((disk / LOCK_NAME).open("w")) for disk in (locked, free)]
        assert os.fstat(files[0].fileno()).st_ino == os.fstat(files[1].fileno()).st_ino
        fcntl.flock(files[0], fcntl.LOCK_EX)
        files[1].close()

        assert holding(locked) == os.getpid()
        assert holding(free) is None
