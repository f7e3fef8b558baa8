"""Reads the database without owning it: while the daemon is down, or beside it. Changes nothing.

No lock is taken, nothing is migrated and nothing set aside: a daemon that starts meanwhile is not disturbed.
"""

import errno
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from criproxy.errors import StoreError, reason_of
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.store.database import NAME, read_node, read_saved_s
from criproxy.store.schema import VERSION, version_of

BUSY_S = 2.0
"""How long to wait for a process that has locked the whole file for a moment."""
TRIES = 20
"""How many copies to begin while another process writes; one takes a few milliseconds."""
MOST_ROWS = 20_000
"""Of one table in `contents`."""
MOST_WRONG = 20
"""Findings of SQLite in `integrity`."""


class Reader:
    """One look at the database in a state directory. Make one with `open_reader`.

    Everything that it raises is a `StoreError`.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, touched_s: float) -> None:
        self.path = path
        self.saved_s = read_saved_s(connection) or touched_s
        """When the node was saved last, in seconds since the epoch; the files may be newer, by a write that failed."""
        self.connection = connection
        """For the questions of `history`."""

    def node(self, topology: Topology) -> Node:
        """The node as it was saved last, on the machine *topology*."""
        return read_node(self.connection, topology)


@contextmanager
def open_reader(directory: Path, busy_s: float = BUSY_S) -> Iterator[Reader]:
    """The database in *directory* as it is at this moment.

    Raises:
        StoreError: there is none, it is of another version, or it cannot be read.
    """
    with _any_version(directory, busy_s) as (connection, changed_s):
        path, version = directory / NAME, version_of(connection)
        if version != VERSION:
            raise StoreError(
                f"the state database {path} is of version {version}, and this criproxy reads version {VERSION}: "
                "ask with the criproxy that wrote it, or start this one's daemon"
            )
        yield Reader(path, connection, changed_s)


@contextmanager
def _connected(path: Path, busy_s: float) -> Iterator[tuple[sqlite3.Connection, float]]:
    """The database, and when it was changed last.

    To open it in its place would make the files by which SQLite learns of writers, or change those that are there: who
    asks later would take that for a change. So a copy is read; only where there is no room for one, the database.
    """
    with TemporaryDirectory(prefix="criproxy-") as folder:
        place = Path(folder) / NAME
        try:
            changed_s = _copied(path, Path(folder))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EBUSY):
                raise
            changed_s, place = _last_change(path), path
        uri = f"{place.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=busy_s)) as connection:
            connection.execute("BEGIN")
            version_of(connection)  # from here on, all that is read is of one moment
            yield connection, changed_s


def _copied(path: Path, folder: Path) -> float:
    """Copy the database as it is at one moment; returns when it was changed last.

    Raises:
        OSError: it cannot be read, there is no room for a copy, or it changes all the time (EBUSY).
    """
    for _ in range(TRIES):
        before, changed_s = _marks(path), _last_change(path)
        for part in _parts(path):
            with suppress(FileNotFoundError):  # there is no log after a clean end
                copyfile(part, folder / part.name)
        if before == _marks(path):
            return changed_s
        for part in folder.iterdir():
            part.unlink()
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))


def _parts(path: Path) -> tuple[Path, Path]:
    """The database, and the log of what was written last."""
    return path, path.with_name(f"{NAME}-wal")


def _marks(path: Path) -> list[tuple[int, int, int]]:
    """What is different after each write."""
    stats = [part.stat() for part in _parts(path) if part.exists()]
    return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


def _last_change(path: Path) -> float:
    """In seconds since the epoch; an empty log is one that only a reader has made."""
    stats = [part.stat() for part in _parts(path) if part.exists()]
    return max(stat.st_mtime for number, stat in enumerate(stats) if number == 0 or stat.st_size)


def integrity(directory: Path, busy_s: float = BUSY_S) -> dict[str, Any]:
    """Return the version of the database in *directory*, what SQLite finds wrong with it, and the rows of its tables.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    with _any_version(directory, busy_s) as (connection, _):
        wrong = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({MOST_WRONG})")]
        return {
            "version": version_of(connection),
            "newest_known_version": VERSION,
            "wrong": [] if wrong == ["ok"] else wrong,
            "rows": {name: _rows_in(connection, name) for name in _table_names(connection)},
        }


def contents(directory: Path, busy_s: float = BUSY_S) -> dict[str, list[dict[str, Any]]]:
    """Return the newest `MOST_ROWS` rows of each table of the database in *directory*, JSON in them as values.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    with _any_version(directory, busy_s) as (connection, _):
        return {name: _values_in(connection, name) for name in _table_names(connection)}


@contextmanager
def _any_version(directory: Path, busy_s: float) -> Iterator[tuple[sqlite3.Connection, float]]:
    """Open the database, also one that `open_reader` would not take; with when it was changed last."""
    path = directory / NAME
    try:
        if not path.exists():
            raise StoreError(f"there is no state database {path}: criproxy has not run with this state directory")
        with _connected(path, busy_s) as opened:
            yield opened
    except (sqlite3.Error, OSError, ValueError) as error:
        raise StoreError(f"the state database {path} cannot be read: {reason_of(error)}") from error


def _table_names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return sorted(str(row[0]) for row in rows)


def _rows_in(connection: sqlite3.Connection, table: str) -> int | None:
    """Return the number of rows; None if a damaged table cannot be read."""
    try:
        return int(connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0])  # noqa: S608 (the names of its tables)
    except sqlite3.DatabaseError:
        return None


def _values_in(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
    rows = connection.execute(f"SELECT * FROM {_quoted(table)} ORDER BY 1 DESC LIMIT {MOST_ROWS}")  # noqa: S608
    return [{name: _decoded(value) for name, value in zip(columns, row, strict=True)} for row in rows]


def _quoted(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def _decoded(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON has it: a text that is an object or a list of JSON as that."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError):
            return json.loads(value)
    return value.hex() if isinstance(value, bytes) else value
