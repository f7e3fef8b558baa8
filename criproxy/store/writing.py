"""Writes the rows in which two nodes differ; one that cannot be written for its value is left out, and it alone.

A value that is too large for SQLite, or no text, is no failing disk: retries would never end. It is
tried again when the row changes, and forgotten with what it is about.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from criproxy.model.node import Node
from criproxy.store.rows import APPLIED, CONTAINERS, FORMER, GRANTS, Table, changes

MAX_REASON = 200
"""Characters that are kept of why a row cannot be written."""
_OF_VALUES = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError)
_HANGING = frozenset({GRANTS.name, APPLIED.name, FORMER.name})
"""Tables whose rows say nothing without that of their container."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is not on disk."""

    table: str
    key: str
    title: str
    """What people call what it is about."""
    reason: str


def is_of_value(error: Exception) -> bool:
    """Whether *error* is about what should be written, and not about the disk or the database."""
    if isinstance(error, sqlite3.Error):
        return isinstance(error, _OF_VALUES) or str(error).startswith("Error binding parameter")
    return not isinstance(error, OSError | MemoryError)


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """A part of a transaction: what is raised in it undoes this part alone."""
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # an error of the disk may have ended all of it
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")


def failure_of(connection: sqlite3.Connection, write: Callable[[], None]) -> Exception | None:
    """Call *write*; if it fails for a value, undo it alone and return the error.

    Raises:
        sqlite3.Error: the disk or the database fails.
    """
    try:
        with savepoint(connection):
            write()
    except Exception as error:
        if not is_of_value(error):
            raise
        return error
    return None


class Writer:
    """Knows what is left out so far. The caller holds the transaction, and calls `commit` or `rollback` at its end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.left_out: tuple[LeftOut, ...] = ()
        """By the last transaction that was committed."""
        self._connection = connection
        self._committed: dict[tuple[str, str], tuple[object, LeftOut]] = {}
        self._now = dict(self._committed)
        """Each with the value that could not be written."""

    def commit(self) -> None:
        """What was written counts from now on."""
        self._committed, self.left_out = self._now, tuple(left for _, left in self._now.values())

    def rollback(self) -> None:
        """Nothing was written since the last commit."""
        self._now = self._committed

    def begin(self, after: Node, every: Sequence[Table]) -> None:
        """Forget what was left out and is another value in *after*, or not there any more."""
        if self._committed:
            entries = {table.name: table.entries(after) for table in every}
            kept = self._committed.items()
            self._now = {name: it for name, it in kept if entries[name[0]].get(name[1]) is it[0]}

    def write(self, table: Table, before: Node, after: Node) -> tuple[list[str], list[str]]:
        """Write the rows of *table* in which the nodes differ; the keys that were written, and those that are gone.

        Raises:
            sqlite3.Error: the disk or the database fails.
        """
        keys, gone = changes(table, before, after)
        if table.name in _HANGING and (self._committed or self._now):
            keys = self._with_their_containers(table, keys, after)
        if not keys and not gone:
            return [], []
        if failure_of(self._connection, lambda: self._write(table, keys, gone, after)):
            keys = [key for key in keys if self._tried(table, key, after, lambda: self._write(table, [key], [], after))]  # noqa: B023 (called at once)
            for key in gone:
                self._tried(table, key, after, lambda: self._write(table, [], [key], after))  # noqa: B023 (as above)
        return keys, gone

    def _write(self, table: Table, keys: Sequence[str], gone: Sequence[str], after: Node) -> None:
        entries = table.entries(after)
        if gone:
            self._connection.executemany(table.delete, [(key,) for key in gone])
        if keys:
            self._connection.executemany(table.upsert, [table.to_row(key, entries[key]) for key in keys])

    def _tried(self, table: Table, key: str, after: Node, write: Callable[[], None]) -> bool:
        """Whether *write* could write the row of *key*; if not, it is left out."""
        error = failure_of(self._connection, write)
        if error and (value := table.entries(after).get(key)) is not None:
            left = LeftOut(table.name, key, _title(value, key), _reason(error))
            self._now = {**self._now, (table.name, key): (value, left)}
        return error is None

    def _with_their_containers(self, table: Table, keys: Collection[str], after: Node) -> list[str]:
        """*keys* without those whose container is left out, and with those whose container is so no more."""
        entries, name = table.entries(after), CONTAINERS.name
        back = [key for kind, key in self._committed if kind == name and (kind, key) not in self._now]
        wanted = dict.fromkeys([*keys, *(key for key in back if key in entries)])
        return [key for key in wanted if (name, key) not in self._now]


def _title(value: Any, key: str) -> str:  # noqa: ANN401 (a value of the model)
    return str(getattr(value, "title", key))


def _reason(error: Exception) -> str:
    return (str(error) or repr(error))[:MAX_REASON]
