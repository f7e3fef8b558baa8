"""The table of the history: bounded in rows and bytes, and per container.

Of a container that still lives, what it asked and why it is where it is stays longest: those that ended make room
first, and of these the namespace that has the most. Nothing here looks at more rows than it writes or drops, except for
one look at the table for each hundredth of it that is dropped.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from criproxy.model.record import LAST, REPEATING, Kind, Record
from criproxy.store.writing import Parts

MAX_ROWS = 20_000
MAX_BYTES = 8 << 20
MAX_REPEATS = 12
"""Records of `REPEATING` kinds that one container keeps."""
MAX_CONSIDERED = 4
"""Records of the kind `CONSIDERED` that one container keeps."""
MAX_TEXT = 4_000
"""Characters of one record's sentences, and of its facts."""
MAX_FOUND = 1_000
"""Records that one question is answered with: the newest."""

_COLUMNS = "at_s, key, container, kind, reasons, life, facts"
_SIZE = " + ".join(f"length(CAST({name} AS BLOB))" for name in ("key", "container", "reasons", "life", "facts"))
"""Of a row, in bytes: SQLite counts the characters of a text only to the first NUL."""
_NAMESPACE = "substr(container, 1, instr(container, '/'))"
"""Of a row; empty if it is about the node."""
_REPEATING = ", ".join(f"'{kind.value}'" for kind in sorted(REPEATING, key=lambda kind: kind.value))
_HIGHEST = "\U0010ffff"
_KINDS = {kind.value: kind for kind in Kind}


class History:
    """The records in one database. The caller holds the transaction, and calls `rollback` if that fails."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._connection = parts.connection
        self._now: tuple[int, int] | None = None
        """Rows and bytes. Counted at the first record, which is not on the way of a start, and after a failure."""
        self.lost = 0
        """Records that could not be written for their values: they are left out, and nothing else is."""

    def rollback(self) -> None:
        """What was added in this transaction was not."""
        self._now = None

    def add(self, records: Iterable[Record]) -> None:
        """Write *records*, in order, and drop what is too old or too much; none of them fails the others."""
        records = list(records)
        if records and not self._added(records):
            self.lost += sum(not self._added([record]) for record in records)

    def _added(self, records: Sequence[Record]) -> bool:
        """Whether *records* could be written; if not, none of them is."""
        before = self._now
        is_done = self._parts.failure_of(lambda: self._add(records)) is None
        if not is_done:
            self._now = before
        return is_done

    def _add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._now = self._insert(record, *(self._now or self._counted()))
            if self._is_full():
                self._make_room()

    def _is_full(self) -> bool:
        rows, size = self._now or self._counted()
        return rows > MAX_ROWS or size > MAX_BYTES

    def _make_room(self) -> None:
        """Drop rows, but not the newest one, until there is room."""
        newest = self._connection.execute("SELECT max(id) FROM decisions").fetchone()[0]
        while self._is_full():
            dropped, freed = self._drop_ended(newest)
            if not dropped:
                dropped, freed = self._drop("WHERE id < ? ORDER BY id LIMIT 1", newest)
            if not dropped:  # others have deleted rows: without this, a wrong count would keep us here for ever
                self._now = self._counted()
                return
            rows, size = self._now or self._counted()
            self._now = rows - dropped, size - freed

    def _drop_ended(self, newest: int) -> tuple[int, int]:
        """Drop the oldest rows of containers that ended, of the namespace that has the most: a hundredth of the table.

        So a namespace with many short-lived containers does not push out what happened in the others.
        """
        rows, _ = self._now or self._counted()
        most = "count(*)" if rows > MAX_ROWS else f"total({_SIZE})"
        query = f"""
            SELECT {_NAMESPACE} AS namespace FROM decisions WHERE ended AND id < ?
            GROUP BY namespace ORDER BY {most} DESC, min(id) LIMIT 1
        """  # noqa: S608 (no user's text)
        found = self._connection.execute(query, (newest,)).fetchone()
        if found is None:
            return 0, 0
        which = f"WHERE ended AND id < ? AND {_NAMESPACE} = ? ORDER BY id LIMIT ?"
        return self._drop(which, newest, found[0], max(1, rows // 100))

    def end(self, lives: Iterable[str]) -> None:
        """The containers *lives* are gone: their records may make room for others."""
        self._connection.executemany("UPDATE decisions SET ended = 1 WHERE life = ?", [(life,) for life in lives])

    def _insert(self, record: Record, rows: int, size: int) -> tuple[int, int]:
        """Write *record*, drop what its container has too much of, and return rows and bytes after that."""
        row = _row(record)
        marks = ", ".join("?" * (len(row) + 1))
        ended = record.kind in LAST or not record.life or self._comes_late(record)
        self._connection.execute(f"INSERT INTO decisions ({_COLUMNS}, ended) VALUES ({marks})", (*row, ended))  # noqa: S608
        dropped = freed = 0
        if record.kind in REPEATING:
            which = f"WHERE life = ? AND kind IN ({_REPEATING}) ORDER BY id DESC LIMIT -1 OFFSET {MAX_REPEATS}"
            dropped, freed = self._drop(which, record.life)
        elif record.kind is Kind.CONSIDERED:
            which = f"WHERE life = ? AND kind = 'considered' ORDER BY id DESC LIMIT -1 OFFSET {MAX_CONSIDERED}"
            dropped, freed = self._drop(which, record.life)
        elif record.kind in LAST:
            self.end([record.life])
        return rows + 1 - dropped, size + _size(row) - freed

    def _comes_late(self, record: Record) -> bool:
        """Whether *record* is about a decision whose container has ended since, or never was."""
        if record.kind is not Kind.CONSIDERED:
            return False
        query = "SELECT 1 FROM decisions WHERE life = ? AND ended LIMIT 1"
        return self._connection.execute(query, (record.life,)).fetchone() is not None

    def _drop(self, which: str, *arguments: str | int) -> tuple[int, int]:
        """Delete the rows *which*; returns how many there were, and their bytes."""
        found = self._connection.execute(f"SELECT id, {_SIZE} FROM decisions {which}", arguments).fetchall()  # noqa: S608
        if found:
            self._connection.executemany("DELETE FROM decisions WHERE id = ?", [(number,) for number, _ in found])
        return len(found), sum(size for _, size in found)

    def _counted(self) -> tuple[int, int]:
        query = f"SELECT count(*), total({_SIZE}) FROM decisions"  # noqa: S608 (no user's text)
        rows, size = self._connection.execute(query).fetchone()
        return int(rows), int(size)


def find(connection: sqlite3.Connection, text: str) -> list[Record]:
    """All records of the containers whose id or reservation begins with *text*, or whose name it is, oldest first.

    Reads the whole table once, which takes some milliseconds: for what people ask.
    """
    return _select(
        connection,
        """life IN (
            SELECT DISTINCT life FROM decisions NOT INDEXED WHERE life <> '' AND (
                container = :text OR (key >= :text AND key < :end) OR (life >= :text AND life < :end)
            )
        )""",
        {"text": text, "end": text + _HIGHEST},
    )


def titles(connection: sqlite3.Connection) -> list[str]:
    """NAMESPACE/POD/CONTAINER of all containers in the history, in order."""
    rows = connection.execute("SELECT DISTINCT container FROM decisions WHERE container <> '' ORDER BY container")
    return [title for (title,) in rows]


def refused_since(connection: sqlite3.Connection, since_s: float) -> list[tuple[str, str, int, float]]:
    """Name, last reason, number and last time of those refused since then and not placed after; the newest first.

    Looks at the whole table: not for a daemon at work.
    """
    query = """
        SELECT refused.container, reasons, count(*), max(at_s) FROM decisions AS refused LEFT JOIN (
            SELECT container, max(id) AS last FROM decisions WHERE kind = 'granted' GROUP BY container
        ) AS placed ON placed.container = refused.container
        WHERE kind = 'refused' AND at_s > ? AND refused.id > coalesce(placed.last, 0)
        GROUP BY refused.container ORDER BY max(at_s) DESC
    """
    return [
        (name, text.replace("\n", " "), times, at_s) for name, text, times, at_s in connection.execute(query, [since_s])
    ]


def newest(connection: sqlite3.Connection, kind: Kind, lives: Iterable[str]) -> list[Record]:
    """Of each of the containers *lives* the last record of that kind, if there is one."""
    query = f"""
        SELECT {_COLUMNS} FROM decisions WHERE id IN (
            SELECT max(id) FROM decisions WHERE life IN (SELECT value FROM json_each(:lives)) AND kind = :kind
            GROUP BY life
        ) ORDER BY id
    """  # noqa: S608 (no user's text)
    return [_record(row) for row in connection.execute(query, {"lives": json.dumps(list(lives)), "kind": kind.value})]


def since(
    connection: sqlite3.Connection, after: int, without: Iterable[Kind] = (), namespace: str = ""
) -> tuple[list[Record], int]:
    """The newest records that were written after the one with the number *after*, and the number of the last one.

    A number that is larger than that of the last record is of another database: then all records are newer. The query
    reads only the rows that it returns and those between them, or with a namespace the whole table at most: a daemon at
    work may ask it.

    Args:
        connection: to the database.
        after: 0 for the newest of all.
        without: kinds that are left out.
        namespace: if given, only records of its containers.
    """
    last = int(connection.execute("SELECT coalesce(max(id), 0) FROM decisions").fetchone()[0])
    where = "id > :after AND kind NOT IN (SELECT value FROM json_each(:without))"
    if namespace:
        where += " AND container >= :namespace || '/' AND container < :namespace || '0'"  # that is the next one
    kinds = json.dumps([kind.value for kind in without])
    arguments: dict[str, str | int] = {"after": after if after <= last else 0, "without": kinds, "namespace": namespace}
    return _select(connection, where, arguments), last


def _select(connection: sqlite3.Connection, where: str, arguments: Mapping[str, str | int]) -> list[Record]:
    query = f"SELECT {_COLUMNS} FROM decisions WHERE {where} ORDER BY id DESC LIMIT {MAX_FOUND}"  # noqa: S608
    return [_record(row) for row in reversed(connection.execute(query, arguments).fetchall())]


def _row(record: Record) -> tuple[Any, ...]:
    facts = json.dumps(record.facts, separators=(",", ":"))
    return (
        record.at_s,
        record.key,
        record.container,
        record.kind.value,
        "\n".join(record.sentences)[:MAX_TEXT],
        record.life,
        facts if len(facts) <= MAX_TEXT else "{}",
    )


def _size(row: tuple[Any, ...]) -> int:
    _, key, container, _, reasons, life, facts = row
    return sum(len(text.encode()) for text in (key, container, reasons, life, facts))


def _record(row: tuple[Any, ...]) -> Record:
    at_s, key, container, kind, reasons, life, facts = row
    sentences = tuple(reasons.split("\n")) if reasons else ()
    return Record(at_s, key, container, _KINDS.get(kind, Kind.NODE), sentences, life, json.loads(facts))
