"""One SQLite database, used by one thread at a time: opening, setting aside, loading, saving."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from os import stat_result
from os.path import samestat
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from criproxy.errors import StoreError, reason_of
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.store import rows
from criproxy.store.history import History
from criproxy.store.schema import FIRST, VERSION, has_table, migrate, version_of
from criproxy.store.writing import Parts, Writer

P = ParamSpec("P")
T = TypeVar("T")
NAME = "criproxy.db"
WORDS = ("released", "configuration", "pods_cgroup")
"""What is true of the whole node: fields of `Node`, and keys in the table ``meta``."""
_SAVED = "saved_s"
"""The key in that table of the time of the last save, in seconds since the epoch."""
_CACHE_KIB = 512
"""Pages of the database that stay in memory: with SQLite's 2 MiB a save of 1,000 containers' node takes as long."""
_PAGE_BYTES = 2048
"""Of a database that is made: whatever changes costs a page. One of before keeps its 4 KiB."""
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""Codes that say at opening: this file is damaged, no database, or one with other tables than ours."""


class Database:
    """The state of one node on disk.

    Raises:
        StoreError: it cannot be opened: the reason in one sentence. A broken or newer one is set aside instead.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self.set_aside: str | None = None
        """One sentence about an earlier database that could not be used; None where all is well."""
        with _as_store_error(self.path):
            try:
                self._connection = self._open()
            except _UnusableError as error:
                release = _release_in(self.path)
                self.set_aside = self._rename_away(str(error))
                self._connection = self._open()
                for word, value in release.items():  # nobody else knows that its containers are not to be placed
                    self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (word, value))
            self._file = self.path.stat()
            self.saved_s = read_saved_s(self._connection)
            """When an earlier process saved the node last, in seconds since the epoch; None if that is not known."""
            self._parts = Parts(self._connection)
            self.history = History(self._parts)
            self.writer = Writer(self._parts)

    @property
    def in_place(self) -> bool:
        """Whether the file that is open is still the one at `path`."""
        with _as_store_error(self.path):
            return is_at(self._file, self.path)

    def load(self, topology: Topology) -> Node:
        """The node as it was saved last, on the machine *topology*."""
        with _as_store_error(self.path):
            return read_node(self._connection, topology)

    def save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        """Write in one transaction what differs, and the records; what cannot be written for its value is left out."""
        with _as_store_error(self.path):
            self._parts.run(partial(self._save, before, after, records))

    def _save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        with self._transaction():
            # In any case something, so that it fails where the disk does.
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SAVED, repr(time.time())))
            self.writer.begin(after)
            for table in rows.tables():
                keys, gone = self.writer.write(table, before, after)
                if gone and table is rows.CONTAINERS:  # one that got its id has only changed its key
                    ended = {before.containers[key].life for key in gone} - {after.containers[key].life for key in keys}
                    self._parts.failure_of(partial(self.history.end, ended))  # a life that is no text has no records
            for word in WORDS:
                if getattr(before, word) != getattr(after, word):
                    self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (word, getattr(after, word)))
            if self._parts.failure_of(partial(self.history.add, records)):  # whatever is wrong with them
                self.history.lost += len(records)

    def read(self, question: Callable[Concatenate[sqlite3.Connection, P], T], *of: P.args, **more: P.kwargs) -> T:
        """Return the answer to a *question* about the history, one of the functions of `history`."""
        with _as_store_error(self.path):
            return question(self._connection, *of, **more)

    def close(self) -> None:
        """Close the file; nothing is lost without it."""
        self._connection.close()

    def _open(self) -> sqlite3.Connection:
        if self.path.exists() and not self.path.stat().st_size:  # SQLite would take it for a new one
            raise _UnusableError("it is empty")
        # Made by the thread that starts, used by the thread that writes, never by both at once.
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=1)
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
            connection.execute("PRAGMA temp_store = MEMORY")  # not /var/tmp, which may be full, or not be there
            version = version_of(connection)
            if version > VERSION or 0 < version < FIRST:
                newer = f" is newer than {VERSION}, the newest that criproxy can read"
                older = f" is older than {FIRST}, the oldest that criproxy can read"
                raise _UnusableError(f"its version {version}{newer if version > VERSION else older}")
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise _UnusableError(f"it is damaged: {verdict}")
            migrate(connection)
            for table in rows.tables():
                try:
                    for row in connection.execute(table.select):
                        table.entry(row)
                except (ValueError, TypeError) as error:
                    raise _UnusableError(f"its table {table.name} cannot be read: {error}") from error
        except sqlite3.DatabaseError as error:
            connection.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
                raise _UnusableError(f"it is damaged or not ours: {error}") from error
            raise
        except _UnusableError:
            connection.close()
            raise
        return connection

    def _rename_away(self, reason: str) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        place = self.path.with_name(f"{NAME}.{stamp}")
        for number in count(2):
            if not place.exists():
                break
            place = self.path.with_name(f"{NAME}.{stamp}-{number}")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(NAME + suffix)
            if part.exists():
                part.rename(place.with_name(place.name + suffix))
        return f"the state database {self.path} cannot be used: {reason}; it was set aside as {place.name}"

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
            self.writer.commit()
        except BaseException:
            self.history.rollback()
            self.writer.rollback()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def is_at(file: stat_result, path: Path) -> bool:
    """Whether an open *file* is the one at *path*."""
    try:
        return samestat(file, path.stat())
    except FileNotFoundError:
        return False


def read_node(connection: sqlite3.Connection, topology: Topology) -> Node:
    """The node that a database of this version holds, on the machine *topology*."""

    def read(table: rows.Table) -> dict[str, Any]:
        return dict(map(table.entry, connection.execute(table.select)))

    def beside(table: rows.Table, name: str, base: dict[str, Any]) -> dict[str, Any]:
        """Return *base* with the values of *table* in the field *name*; a reader may find no such table."""
        found = read(table) if has_table(connection, table.name) else {}
        news = {key: replace(base[key], **{name: found[key]}) for key in found.keys() & base.keys()}
        return {**base, **news} if news else base

    containers = beside(rows.OF_POD, "of_pod", read(rows.CONTAINERS))
    containers = beside(rows.KUBELET_FILES, "kubelet_files", containers)
    return Node(
        topology,
        pods=read(rows.PODS),
        containers=containers,
        grants=beside(rows.CONTROLS, "controls", read(rows.GRANTS)),
        applied=read(rows.APPLIED),
        kept=read(rows.KEPT),
        incidents=read(rows.QUOTA_INCIDENTS) | read(rows.INCIDENTS),
        former=beside(rows.FORMER_CONTROLS, "controls", read(rows.FORMER)),
        **{key: value for key, value in connection.execute("SELECT key, value FROM meta") if key in WORDS},
    )


def read_saved_s(connection: sqlite3.Connection) -> float | None:
    """When the node was saved last, in seconds since the epoch; None where that is not written."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_SAVED,)).fetchone()
    return float(row[0]) if row else None


class _UnusableError(Exception):
    """A database that this program cannot work with; the text says why."""


def _release_in(path: Path) -> Mapping[str, str]:
    """The words of the released node in a database that is about to be set aside; empty if it has none, or is damaged.

    The configuration belongs to it: another one than that of the release would end it.
    """
    try:
        with closing(sqlite3.connect(path, timeout=1)) as connection:
            found = dict(connection.execute("SELECT key, value FROM meta WHERE key IN (?, ?, ?)", WORDS))
    except sqlite3.Error:
        return {}
    return found if found.get("released") and all(isinstance(each, str) for each in found.values()) else {}


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the state database {path} cannot be used: {reason_of(error)}") from error
