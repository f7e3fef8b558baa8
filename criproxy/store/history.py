"""The table of the history: bounded in rows and bytes, and per container.

Of a container that still lives, what it asked and why it is where it is stays longest: those that ended make room
first, of the namespace that has the most. Namespaces that have less than the average of all lose nothing, so that one
with many containers, which live or end, does not push out what happened in the others. A row costs the same however
many there are: nothing here looks at more rows than it writes or drops, except for two looks at the table after a
start, and where rows of containers that live make room.
"""

import json
import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import compress
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
_INSERT = f"INSERT INTO decisions ({_COLUMNS}, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 (no user's text)
_SIZE = " + ".join(f"length(CAST({name} AS BLOB))" for name in ("key", "container", "reasons", "life", "facts"))
"""Of a row, in bytes: SQLite counts the characters of a text only to the first NUL."""
_NAMESPACE = "substr(container, 1, instr(container, '/'))"
"""Of a row; empty if it is about the node."""
_LATE = frozenset({Kind.CONSIDERED})
"""Kinds of records that may come after the last one of their container."""
_LIMITS = ((REPEATING, MAX_REPEATS), (_LATE, MAX_CONSIDERED))
"""Kinds, and how many records of these one container keeps."""
_json = json.JSONEncoder(separators=(",", ":")).encode
_Amount = tuple[int, int]
"""Rows and bytes."""
_HIGHEST = "\U0010ffff"
_KINDS = {kind.value: kind for kind in Kind}


class History:
    """The records in one database. The caller holds the transaction, and calls `rollback` if that fails."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._connection = parts.connection
        self._now: _Amount | None = None
        """Of the table. Counted at the first record, which is not on the way of a start, and after a failure."""
        self._ended: dict[str, _Amount] | None = None
        """Of those that ended, by namespace. Counted when the table is full for the first time, and so are all."""
        self._all: dict[str, _Amount] = {}
        """The same of all rows, while those that ended are counted."""
        self.lost = 0
        """Records that could not be written for their values: they are left out, and nothing else is."""

    def rollback(self) -> None:
        """What was added in this transaction was not."""
        self._now = self._ended = None

    def add(self, records: Iterable[Record]) -> None:
        """Write *records*, in order, and drop what is too old or too much; none of them fails the others."""
        records = list(records)
        if records and not self._added(records):
            self.lost += sum(not self._added([record]) for record in records)

    def end(self, lives: Iterable[str]) -> None:
        """The containers *lives* are gone: their records may make room for others."""
        lives = list(lives)
        if self._ended is not None:
            query = f"SELECT {_NAMESPACE}, {_SIZE} FROM decisions WHERE life = ? AND NOT ended"  # noqa: S608 (no user's text)
            for life in lives:
                _count(self._ended, self._connection.execute(query, (life,)))
        query = "UPDATE decisions SET ended = 1 WHERE life = ? AND NOT ended"
        self._connection.executemany(query, [(life,) for life in lives])

    def _added(self, records: Sequence[Record]) -> bool:
        """Whether *records* could be written; if not, none of them is."""
        is_done = self._parts.failure_of(lambda: self._add(records)) is None
        if not is_done:
            self.rollback()
        return is_done

    def _add(self, records: Sequence[Record]) -> None:
        before = self._now or self._counted()
        last = {record.life for record in records if record.kind in LAST and record.life}
        rows = [(*_row(each), each.life in last or not each.life) for each in records]
        sizes = [_size(row) for row in rows]
        self._connection.executemany(_INSERT, rows)
        self._now = before[0] + len(rows), before[1] + sum(sizes)
        if self._ended is not None:
            of_namespaces = list(zip(map(_namespace, rows), sizes, strict=True))
            _count(self._all, of_namespaces)
            _count(self._ended, compress(of_namespaces, [row[-1] for row in rows]))
        self.end(last | self._ended_before(_lives(records, _LATE) - last))
        for kinds, most in _LIMITS:
            if lives := _lives(records, kinds):
                self._limit(lives, ", ".join(f"'{kind.value}'" for kind in kinds), most)
        if self._is_full():
            self._make_room()

    def _ended_before(self, lives: set[str]) -> set[str]:
        """Those of *lives* that have ended, or never were."""
        query = "SELECT life FROM decisions WHERE life IN (SELECT value FROM json_each(?)) AND +ended"
        return {life for (life,) in self._connection.execute(query, (json.dumps(list(lives)),))} if lives else set()

    def _limit(self, lives: set[str], kinds: str, most: int) -> None:
        """Drop what each of *lives* has too much of."""
        query = f"""
            SELECT life FROM decisions WHERE life IN (SELECT value FROM json_each(?)) AND kind IN ({kinds})
            GROUP BY life HAVING count(*) > {most}
        """  # noqa: S608 (no user's text)
        for (life,) in self._connection.execute(query, (json.dumps(list(lives)),)).fetchall():
            self._drop(f"WHERE life = ? AND kind IN ({kinds}) ORDER BY id DESC LIMIT -1 OFFSET {most}", life)

    def _is_full(self) -> bool:
        rows, size = self._now or self._counted()
        return rows > MAX_ROWS or size > MAX_BYTES

    def _make_room(self) -> None:
        """Drop rows, but not the newest one, until there is room."""
        newest = self._connection.execute("SELECT max(id) FROM decisions").fetchone()[0]
        while self._is_full():
            if self._drop_some(newest):
                continue
            self.rollback()  # others have deleted rows: without this, a wrong count would keep us here for ever
            self._now = self._counted()
            return

    def _drop_some(self, newest: int) -> int:
        """Drop old rows of the namespaces that have the most, of containers that ended if possible; return how many.

        Half of what ended goes at once, and a twentieth of the table at most: to search costs more than to drop.
        """
        if self._ended is None:
            self._ended, self._all = self._counted_by_namespace("WHERE ended"), self._counted_by_namespace("")
        rows, _ = self._now or self._counted()
        measure = 0 if rows > MAX_ROWS else 1
        most = sorted(self._all, key=lambda name: self._all[name][measure], reverse=True)
        average = sum(amount[measure] for amount in self._all.values()) / max(1, len(most))
        for namespace in (name for name in most if self._all[name][measure] >= average and name in self._ended):
            some = max(1, min(rows // 20, self._ended[namespace][0] // 2))
            which = f"WHERE ended AND id < ? AND {_NAMESPACE} = ? ORDER BY id LIMIT ?"
            if dropped := self._drop(which, newest, namespace, some):
                return dropped
        which = f"WHERE id < ? AND {_NAMESPACE} = ? ORDER BY ended DESC, id LIMIT ?"
        some = max(1, rows // 100)
        return next(filter(None, (self._drop(which, newest, name, min(some, self._all[name][0])) for name in most)), 0)

    def _drop(self, which: str, *arguments: str | int) -> int:
        """Delete the rows *which*; return how many there were."""
        query = f"SELECT id, {_SIZE}, ended, {_NAMESPACE} FROM decisions {which}"  # noqa: S608 (no user's text)
        found = self._connection.execute(query, arguments).fetchall()
        self._connection.executemany("DELETE FROM decisions WHERE id = ?", [row[:1] for row in found])
        rows, size = self._now or self._counted()
        self._now = rows - len(found), size - sum(row[1] for row in found)
        if self._ended is not None:
            _count(self._all, ((namespace, size) for _, size, _, namespace in found), -1)
            _count(self._ended, ((namespace, size) for _, size, ended, namespace in found if ended), -1)
        return len(found)

    def _counted_by_namespace(self, which: str) -> dict[str, _Amount]:
        query = f"SELECT {_NAMESPACE}, count(*), total({_SIZE}) FROM decisions {which} GROUP BY 1"  # noqa: S608 (no user's text)
        return {namespace: (number, int(size)) for namespace, number, size in self._connection.execute(query)}

    def _counted(self) -> tuple[int, int]:
        query = f"SELECT count(*), total({_SIZE}) FROM decisions"  # noqa: S608 (no user's text)
        rows, size = self._connection.execute(query).fetchone()
        return int(rows), int(size)


def _count(amounts: dict[str, _Amount], rows: Iterable[tuple[str, int]], sign: int = 1) -> None:
    """Add namespace and size of *rows* to *amounts*; or subtract them."""
    for namespace, size in rows:
        number, total = amounts.get(namespace, (0, 0))
        amounts[namespace] = number + sign, total + sign * size
        if number + sign <= 0:
            del amounts[namespace]


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


def _lives(records: Iterable[Record], kinds: Container[Kind]) -> set[str]:
    return {record.life for record in records if record.kind in kinds}


def _row(record: Record) -> tuple[Any, ...]:
    facts = _json(record.facts) if record.facts else "{}"
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
    _, key, container, _, reasons, life, facts, _ = row
    return len(f"{key}{container}{reasons}{life}{facts}".encode())


def _namespace(row: tuple[Any, ...]) -> str:
    name: str = row[2]
    return name[: name.find("/") + 1]


def _record(row: tuple[Any, ...]) -> Record:
    at_s, key, container, kind, reasons, life, facts = row
    sentences = tuple(reasons.split("\n")) if reasons else ()
    return Record(at_s, key, container, _KINDS.get(kind, Kind.NODE), sentences, life, json.loads(facts))
