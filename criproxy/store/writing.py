"""Writes the rows in which two nodes differ; a row with an invalid value is left out, without the other rows.

A value that is too large for SQLite, or is not valid text, is no failure of the disk: retries would never end. The row
is tried again when its value changes, and forgotten when the node no longer has it.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from criproxy.model.node import Node
from criproxy.store import rows
from criproxy.store.rows import Table, changes

MAX_REASON_CHARS = 200
_VALUE_ERRORS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError)
_OF_CONTAINERS = (rows.GRANTS, rows.APPLIED, rows.FORMER, rows.KUBELET_FILES, rows.CONTROLS, rows.FORMER_CONTROLS)
_DEPENDENT = frozenset(each.name for each in _OF_CONTAINERS)
"""Tables whose rows are useless without the row of their container."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is not on disk."""

    table: str
    key: str
    title: str
    """Of the container or pod, for messages."""
    reason: str


RowId = tuple[str, str]
"""The name of a table, and the key of a row."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """A row that is left out, and its value, to recognize when it has changed."""

    value: object
    row: LeftOut


def is_of_value(error: Exception) -> bool:
    """Whether *error* is about what should be written, and not about the disk or the database."""
    if isinstance(error, sqlite3.Error):
        return isinstance(error, _VALUE_ERRORS) or str(error).startswith("Error binding parameter")
    return not isinstance(error, OSError | MemoryError)


class Parts:
    """The parts of a transaction that may fail alone.

    Their savepoints copy each page before it changes, to a file, which costs more than what is written. So a
    transaction is tried without any, and begun again with them where one of its values cannot be written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._apart = False
        """Whether each part has a savepoint."""

    def run(self, transaction: Callable[[], None]) -> None:
        """Call *transaction*, which undoes everything if it fails; if it does for a value, again, part by part.

        Raises:
            sqlite3.Error: the disk or the database fails.
        """
        try:
            transaction()
        except Exception as error:
            if not is_of_value(error):
                raise
            self._apart = True
            try:
                transaction()
            finally:
                self._apart = False

    def failure_of(self, write: Callable[[], None]) -> Exception | None:
        """Call *write*; if it fails because of a value, undo it alone and return the error, or begin all again.

        Raises:
            sqlite3.Error: the disk or the database fails.
        """
        if not self._apart:
            write()
            return None
        try:
            with self._savepoint():
                write()
        except Exception as error:
            if not is_of_value(error):
                raise
            return error
        return None

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Begin a part, which an exception undoes without the rest."""
        self.connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # an error of the disk may have ended all of it
                self.connection.execute("ROLLBACK TO part")
                self.connection.execute("RELEASE part")
            raise
        self.connection.execute("RELEASE part")


class Writer:
    """Knows what is left out so far. The caller holds the transaction, and calls `commit` or `rollback` at its end."""

    def __init__(self, parts: Parts) -> None:
        self.left_out: tuple[LeftOut, ...] = ()
        """The rows of the node as it was saved last that are not on disk, since their values cannot be written."""
        self._parts = parts
        self._connection = parts.connection
        self._committed: dict[RowId, _Failed] = {}
        self._pending = dict(self._committed)
        """What `_committed` becomes with the present transaction."""

    def commit(self) -> None:
        """Keep what was left out in this transaction."""
        self._committed, self.left_out = self._pending, tuple(failed.row for failed in self._pending.values())

    def rollback(self) -> None:
        """Forget what was left out in this transaction."""
        self._pending = self._committed

    def begin(self, after: Node) -> None:
        """Forget the rows that were left out and have changed in *after*, or are gone."""
        if self._committed:
            entries = {table.name: table.entries(after) for table in rows.tables()}
            self._pending = {
                (table, key): failed
                for (table, key), failed in self._committed.items()
                if entries[table].get(key) is failed.value
            }

    def write(self, table: Table, before: Node, after: Node) -> tuple[list[str], list[str]]:
        """Write the rows of *table* in which the nodes differ; return the keys written, and those deleted.

        Raises:
            sqlite3.Error: the disk or the database fails.
        """
        keys, gone = changes(table, before, after)
        if table.name in _DEPENDENT and (self._committed or self._pending):
            keys = self._with_stored_containers(table, keys, after)
        if not keys and not gone:
            return [], []
        if self._parts.failure_of(partial(self._write, table, keys, gone, after)):  # then row by row
            keys = [key for key in keys if self._try(table, key, after, partial(self._write, table, [key], [], after))]
            for key in gone:
                self._try(table, key, after, partial(self._write, table, [], [key], after))
        return keys, gone

    def _write(self, table: Table, keys: Sequence[str], gone: Sequence[str], after: Node) -> None:
        entries = table.entries(after)
        if gone:
            self._connection.executemany(table.delete, [(key,) for key in gone])
        if keys:
            self._connection.executemany(table.upsert, [table.to_row(key, entries[key]) for key in keys])

    def _try(self, table: Table, key: str, after: Node, write: Callable[[], None]) -> bool:
        """Call *write*, which writes or deletes the row of *key*; leave the row out and return False if that fails."""
        error = self._parts.failure_of(write)
        if error and (value := table.entries(after).get(key)) is not None:
            reason = (str(error) or repr(error))[:MAX_REASON_CHARS]
            row = LeftOut(table.name, key, str(getattr(value, "title", key)), reason)
            self._pending = {**self._pending, (table.name, key): _Failed(value, row)}
        return error is None

    def _with_stored_containers(self, table: Table, keys: Collection[str], after: Node) -> list[str]:
        """Return *keys* without those whose container is left out, and with those whose container no longer is."""
        entries, left_out, former = table.entries(after), _containers_in(self._pending), _containers_in(self._committed)
        stored_now = [key for key in former if key not in left_out and key in entries]
        return [key for key in dict.fromkeys([*keys, *stored_now]) if key not in left_out and table.holds(entries[key])]


def _containers_in(ids: Iterable[RowId]) -> dict[str, None]:
    """Return the keys of the containers among *ids* of rows, in order."""
    return {key: None for table, key in ids if table == rows.CONTAINERS.name}
