"""A row that cannot be written for its value is left out: all others are written, and it ends with its container."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.store.database import Database
from criproxy.store.history import find
from tests.store.test_store import EMPTY, MACHINE, OWNER, POD, POLICY, SHARER

BAD = [
    pytest.param({"memory_limit_bytes": 1 << 70}, "too large", id="overflow"),
    pytest.param({"name": "\ud800"}, "surrogates not allowed", id="no-text"),
    pytest.param({"cpu_milli": cast("Any", object())}, "object", id="no-value-of-sqlite"),
    pytest.param({"hints": cast("Any", (None,))}, "", id="cannot-be-encoded"),
]


def node_with(**bad: object) -> Node:
    """A pod, a container that shares and can be written, and an owner that cannot."""
    node = EMPTY
    for event in (PodCreated(POD), ContainerCreating(SHARER), ContainerCreating(OWNER)):
        node = step(node, event, POLICY).node
    spoilt = replace(node.containers["r1"], **cast("Any", bad))
    return node.replace(containers={**node.containers, "r1": spoilt})


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_only_that_row_is_missing(database: Database, bad: dict[str, object], reason: str) -> None:
    """With it what hangs on it, so that no grant is without its container; everything else is there."""
    node = node_with(**bad)

    database.save(EMPTY, node, [])

    loaded = database.load(MACHINE)
    assert (loaded.pods, loaded.containers) == (node.pods, {"r2": node.containers["r2"]})
    assert loaded.grants == {"r2": node.grants["r2"]}
    (left,) = database.writer.left_out
    assert (left.table, left.key) == ("containers", "r1")
    assert reason in left.reason


def test_nothing_is_apart_while_all_can_be_written(database: Database) -> None:
    """A savepoint copies pages to a file: only the transaction with a value that cannot be written has some."""
    statements = list[str]()
    database._connection.set_trace_callback(statements.append)
    good, bad = node_with(), node_with(memory_limit_bytes=1 << 70)

    database.save(EMPTY, good, [Record(1.0, "r1", "shop/web/main", Kind.GRANTED, ("first",), "r1")])
    savepoints = [text for text in statements if text.startswith("SAVEPOINT")]
    database.save(good, bad, [])
    database.save(bad, good, [])

    assert savepoints == []
    assert [text for text in statements if text.startswith(("BEGIN", "COMMIT", "ROLLBACK"))] == [
        *("BEGIN IMMEDIATE", "COMMIT"),
        *("BEGIN IMMEDIATE", "ROLLBACK", "BEGIN IMMEDIATE", "ROLLBACK TO part", "ROLLBACK TO part", "COMMIT"),
        *("BEGIN IMMEDIATE", "COMMIT"),
    ]


def test_no_file_is_needed_but_the_database(database: Database) -> None:
    """What a savepoint copies stays in memory: there may be no other directory that can be written to."""
    files = set[str]()
    many = {f"c{number}": replace(SHARER, key=f"c{number}", pod="x" * 200) for number in range(1_000)}
    before = EMPTY.replace(containers=many)
    after = before.replace(containers={key: replace(each, cpu_milli=7) for key, each in many.items()})
    bad = after.replace(
        containers={**after.containers, "c999": replace(SHARER, key="c999", memory_limit_bytes=1 << 70)}
    )
    database.save(EMPTY, before, [])
    database._connection.set_trace_callback(lambda _: files.update(open_files()))
    database.save(before, bad, [])

    assert [left.key for left in database.writer.left_out] == ["c999"]
    assert {name for name in files if "criproxy.db" in name}
    assert {name for name in files if "etilqs" in name} == set()


def open_files() -> Iterator[str]:
    """Of this process."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(link.readlink())


def test_it_is_not_tried_again_and_gone_with_its_container(database: Database) -> None:
    """The next saves do not name it any more; when its container has gone, nothing is left of it."""
    node = node_with(memory_limit_bytes=1 << 70)
    database.save(EMPTY, node, [])
    statements = list[str]()
    database._connection.set_trace_callback(statements.append)

    moved = node.replace(grants={**node.grants, "r1": replace(node.grants["r1"], pool="other")})
    database.save(node, moved, [])
    after = moved.replace(pods={**moved.pods, "more": replace(POD, key="more")})
    database.save(moved, after, [])

    assert not [text for text in statements if "'r1'" in text]
    assert [left.key for left in database.writer.left_out] == ["r1"]

    gone = after.replace(containers={"r2": after.containers["r2"]}, grants={"r2": after.grants["r2"]}, applied={})
    database.save(after, gone, [])
    assert (database.writer.left_out, database.load(MACHINE)) == ((), gone)


def test_one_that_can_be_written_later_is(database: Database) -> None:
    """A resize gives it another size: its row is written, and its place, which has not changed."""
    node = node_with(memory_limit_bytes=1 << 70)
    database.save(EMPTY, node, [])

    mended = node.replace(containers={**node.containers, "r1": replace(node.containers["r1"], memory_limit_bytes=1)})
    database.save(node, mended, [])

    assert (database.writer.left_out, database.load(MACHINE)) == ((), mended)


def test_an_error_of_the_disk_fails_all(database: Database) -> None:
    """Nothing is written then, whatever else is wrong."""
    node = node_with(memory_limit_bytes=1 << 70)
    database._connection.execute("PRAGMA query_only = 1")

    with pytest.raises(StoreError, match="readonly"):
        database.save(EMPTY, node, [])
    database._connection.execute("PRAGMA query_only = 0")

    assert (database.writer.left_out, database.load(MACHINE)) == ((), EMPTY)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"key": "\ud800"}, id="no-text"),
        pytest.param({"facts": {"x": object()}}, id="no-json"),
        pytest.param({"sentences": (None,)}, id="no-sentence"),
        pytest.param({"at_s": 1 << 70}, id="overflow"),
    ],
)
def test_a_record_fails_nothing(database: Database, bad: dict[str, object]) -> None:
    """The state and all other records are written; it is counted."""
    good = Record(1.0, "r1", "shop/web/main", Kind.GRANTED, ("first",), "r1")
    last = replace(good, sentences=("last",))
    node = node_with()

    database.save(EMPTY, node, [good, replace(good, **cast("Any", bad)), last])

    assert database.load(MACHINE) == node
    assert [record.sentences for record in database.read(find, "r1")] == [("first",), ("last",)]
    assert database.history.lost == 1
