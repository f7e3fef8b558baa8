"""Reads the database without being the one who has it: while the daemon is down, or beside it. Changes nothing.

No lock is taken, nothing is migrated and nothing set aside: a daemon that starts meanwhile is not disturbed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.store.database import NAME, read_node
from criproxy.store.history import find, newest, refusals, titles
from criproxy.store.record import Kind, Record
from criproxy.store.schema import VERSION, version_of

BUSY_S = 2.0
"""How long to wait for one who has the whole file for a moment."""


class Reader:
    """One look at the database in a state directory. Make one with `open_reader`.

    Everything that it raises is a `StoreError`.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @property
    def changed_s(self) -> float:
        """When the database was changed last, in seconds since the epoch."""
        parts = (self.path, self.path.with_name(f"{NAME}-wal"))
        return max(part.stat().st_mtime for part in parts if part.exists())

    def node(self, topology: Topology) -> Node:
        """The node as it was saved last, on the machine *topology*."""
        return read_node(self._connection, topology)

    def find(self, text: str) -> list[Record]:
        """The history of all containers that *text* may mean: a beginning of an id, or NAMESPACE/POD/CONTAINER."""
        return find(self._connection, text)

    def newest(self, kind: Kind, lives: Sequence[str]) -> list[Record]:
        """Of each of the containers *lives* the last record of that kind, if there is one."""
        return newest(self._connection, kind, lives)

    def refusals(self, since_s: float) -> list[tuple[str, str, int, float]]:
        """Name, last reason, number and last time of those that were refused since then, the newest first."""
        return refusals(self._connection, since_s)

    def titles(self) -> list[str]:
        """NAMESPACE/POD/CONTAINER of all that the history tells of, in order."""
        return titles(self._connection)


@contextmanager
def open_reader(directory: Path, busy_s: float = BUSY_S) -> Iterator[Reader]:
    """The database in *directory* as it is at this moment.

    Raises:
        StoreError: there is none, it is of another version, or it cannot be read.
    """
    path = directory / NAME
    try:
        if not path.exists():
            raise StoreError(f"there is no state database {path}: criproxy has not run with this state directory")
        with closing(_connect(path, busy_s)) as connection:
            _check_version(path, version_of(connection))
            yield Reader(path, connection)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise StoreError(f"the state database {path} cannot be read: {error}") from error


def _connect(path: Path, busy_s: float) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _begin(sqlite3.connect(uri, uri=True, timeout=busy_s))
    except sqlite3.OperationalError:
        wal = path.with_name(f"{NAME}-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        # On a read-only disk SQLite cannot make the files by which it would learn of writers: there are none.
        return _begin(sqlite3.connect(f"{uri}&immutable=1", uri=True))


def _begin(connection: sqlite3.Connection) -> sqlite3.Connection:
    """From here on, all that is read is of one moment."""
    try:
        connection.execute("BEGIN")
        version_of(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _check_version(path: Path, version: int) -> None:
    if version != VERSION:
        raise StoreError(
            f"the state database {path} is of version {version}, and this criproxy reads version {VERSION}: "
            "ask with the criproxy that wrote it, or start this one's daemon"
        )
