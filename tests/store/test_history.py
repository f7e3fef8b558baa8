"""The history keeps what explains those who live, whatever comes and goes beside them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.workload import Container
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreated, ContainerCreating, ContainerGone
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.simulate.hosts import machine
from criproxy.store import history
from criproxy.store.database import Database
from criproxy.store.history import find, newest, since

EMPTY = Node(machine())
POLICY = NonePolicy(Options())
TITLE = "shop/web/main"


def entry(text: str, *, kind: Kind = Kind.GRANTED, key: str = "", life: str = "r-1", title: str = TITLE) -> Record:
    """A record of one sentence."""
    return Record(12.5, key or life, title, kind, (text,), life)


def remember(database: Database, *records: Record) -> None:
    """Write *records* alone."""
    database.save(EMPTY, EMPTY, records)


def told(database: Database, *lives: str) -> list[str]:
    """The first sentences of all records of *lives*."""
    return [record.sentences[0] for record in database.read(since, 0)[0] if record.life in lives]


def lives(database: Database, numbers: range) -> tuple[float, float]:
    """Let containers come and go, ten with each save: SQLite's steps, and bytes of the log, for each of them."""
    log, steps = database.path.with_name("criproxy.db-wal"), list[int]()
    database._connection.execute("PRAGMA wal_autocheckpoint = 0")
    database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database._connection.set_progress_handler(lambda: steps.append(10), 10)
    for first in numbers[::10]:
        records = list[Record]()
        for number in range(first, first + 10):
            life, name = f"r-{number:012x}", f"shop/job-{number}/main"
            records += [entry("x" * 300, kind=kind, life=life, title=name) for kind in (Kind.ASKED, Kind.GRANTED)]
            records += [entry("x" * 200, kind=kind, life=life, title=name) for kind in (Kind.CONSIDERED, Kind.GONE)]
        remember(database, *records)
    database._connection.set_progress_handler(None, 10)
    return sum(steps) / len(numbers), log.stat().st_size / len(numbers)


def test_a_row_costs_the_same_however_many_there_are(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for which others make room are as cheap as the first, but for the drop of as many."""
    monkeypatch.setattr(history, "MAX_ROWS", 8_000)
    remember(database, *(entry(f"{number}", life=f"r-old-{number}") for number in range(400)))
    lives(database, range(1_000))
    first_steps, first_bytes = lives(database, range(1_000, 1_400))
    lives(database, range(1_400, 2_100))
    last_steps, last_bytes = lives(database, range(2_100, 3_000))

    assert (len(database.read(find, "r-old-0")), len(database.read(find, "shop/job-500/main"))) == (1, 0)
    assert last_steps < 2.5 * first_steps
    assert last_bytes < 1.75 * first_bytes  # SQLite writes the pages that become free


def test_the_newest_of_a_kind(database: Database) -> None:
    """One of each container that is asked for, if it has one."""
    for life, text, kind in (
        ("r-1", "old", Kind.DEVICES),
        ("r-2", "other", Kind.DEVICES),
        ("r-1", "new", Kind.DEVICES),
        ("r-1", "granted", Kind.GRANTED),
        ("r-3", "unasked", Kind.DEVICES),
        ("r-4", "granted", Kind.GRANTED),
    ):
        remember(database, entry(text, kind=kind, life=life))

    found = database.read(newest, Kind.DEVICES, ["r-1", "r-2", "r-4", "r-5"])

    assert [record.sentences[0] for record in found] == ["other", "new"]


@pytest.mark.parametrize("text", ["0a1b", "0a", "r-1", TITLE])
def test_found_by_id_reservation_or_name(database: Database, text: str) -> None:
    """The beginning of an id leads to everything of that container, also to what happened before it had the id."""
    remember(
        database,
        entry("asked", kind=Kind.ASKED),
        entry("other", key="ffff", life="r-2", title="shop/db/main"),
        entry("runs", kind=Kind.STARTED, key="0a1b"),
        entry("the node", life="", title=""),
    )

    assert [record.sentences[0] for record in database.read(find, text)] == ["asked", "runs"]


@pytest.mark.parametrize("text", ["0b", "web", "shop/web", "0a1b2", "%", "*", "'"])
def test_not_found(database: Database, text: str) -> None:
    """Only a beginning of an id or a whole name finds something; nothing in the text is a pattern."""
    remember(database, entry("runs", key="0a1b"))

    assert database.read(find, text) == []


def test_the_oldest_make_room(database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The history is bounded in rows and in bytes, also after a restart."""
    monkeypatch.setattr(history, "MAX_ROWS", 5)
    for number in range(8):
        remember(database, entry(f"{number}"))
    assert told(database, "r-1") == ["3", "4", "5", "6", "7"]

    database.close()
    monkeypatch.setattr(history, "MAX_BYTES", 200)
    again = Database(tmp_path)
    remember(again, entry("x" * 140))
    assert told(again, "r-1") == ["7", "x" * 140]
    again.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", [pytest.param("a\0" + "b" * 500, id="NUL"), pytest.param("ü" * 500, id="umlauts")])
def test_what_is_written_counts_as_what_is_dropped(
    database: Database, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Any text that a pod brings: else the table would seem full for ever, and no drop would end that."""
    monkeypatch.setattr(history, "MAX_BYTES", 4_000)
    for number in range(40):
        remember(database, entry(f"{number} {text}", life=f"r-{number}"))

    assert (told(database, "r-39"), told(database, "r-1")) == ([f"39 {text}"], [])


@pytest.mark.timeout(60)
def test_rows_that_others_deleted_end_no_write(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An operator emptied the table: what was counted is not there any more."""
    monkeypatch.setattr(history, "MAX_BYTES", 4_000)
    remember(database, *(entry("x" * 500, life=f"r-{number}") for number in range(7)))
    with closing(sqlite3.connect(tmp_path / "criproxy.db")) as other, other:
        other.execute("DELETE FROM decisions")

    remember(database, entry("y" * 500, life="r-8"))

    assert told(database, "r-8") == ["y" * 500]


def test_those_who_ended_make_room_first(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers that come and go do not push out why the one that stays is where it is."""
    monkeypatch.setattr(history, "MAX_ROWS", 6)
    remember(database, entry("stays", life="r-old"))
    for number in range(20):
        life = f"r-{number}"
        remember(database, entry("comes", life=life), entry("goes", kind=Kind.GONE, life=life))

    assert (told(database, "r-old"), told(database, "r-19")) == (["stays"], ["comes", "goes"])
    assert told(database, "r-1") == []


def test_a_container_that_leaves_the_node_has_ended(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records make room even if nobody wrote that it went; one that only got its id has not ended."""
    monkeypatch.setattr(history, "MAX_ROWS", 3)
    node = EMPTY
    for event in (
        ContainerCreating(Container(key="r-1", pod="s", name="a")),
        ContainerCreating(Container(key="r-2", pod="s", name="b")),
        ContainerCreated("r-1", "id1"),
        ContainerCreated("r-2", "id2"),
        ContainerGone("id2"),
    ):
        after = step(node, event, POLICY).node
        database.save(node, after, [])
        node = after
        if isinstance(event, ContainerCreating):
            remember(database, entry("granted", life=event.container.key))
    remember(database, entry("more", life="r-3"), entry("and more", life="r-3"))

    assert (told(database, "r-1"), told(database, "r-2")) == (["granted"], [])


def test_repeated_updates_do_not_pile_up(database: Database) -> None:
    """Of what happens to a container again and again the newest is kept, and all that happened once."""
    remember(database, entry("granted"))
    for number in range(100):
        remember(database, entry(f"{number}", kind=Kind.UPDATED))

    assert told(database, "r-1") == ["granted", *(f"{number}" for number in range(100 - history.MAX_REPEATS, 100))]


def test_an_answer_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records are told, in the order in which things happened."""
    monkeypatch.setattr(history, "MAX_FOUND", 2)
    remember(database, entry("1"), entry("2"), entry("3"))

    assert told(database, "r-1") == ["2", "3"]


def test_a_long_text_is_cut(database: Database) -> None:
    """One record cannot take the room of all."""
    remember(database, Record(0, "k", TITLE, Kind.GRANTED, ("x" * 100_000,), "r-1", {"y": "z" * 100_000}))

    (record,) = database.read(find, "r-1")
    assert (len(record.sentences[0]), record.facts) == (history.MAX_TEXT, {})


def test_what_a_failed_transaction_added_does_not_count(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk does not make the bounds tighter."""
    monkeypatch.setattr(history, "MAX_ROWS", 3)
    remember(database, entry("1"))
    database._connection.execute("PRAGMA query_only = 1")
    for _ in range(10):
        with pytest.raises(StoreError):
            remember(database, entry("lost"))
    database._connection.execute("PRAGMA query_only = 0")
    remember(database, entry("2"), entry("3"))

    assert told(database, "r-1") == ["1", "2", "3"]


def test_of_what_decisions_were_chosen_from_the_newest_are_kept(database: Database) -> None:
    """It is large, and a container may be resized any number of times; beside it everything else stays."""
    tables = [entry(f"table {number}", kind=Kind.CONSIDERED) for number in range(history.MAX_CONSIDERED + 2)]
    remember(database, entry("asked", kind=Kind.ASKED), *tables, entry("granted"))

    newest = [f"table {number}" for number in range(2, history.MAX_CONSIDERED + 2)]
    assert told(database, "r-1") == ["asked", *newest, "granted"]


def test_what_comes_late_about_one_that_ended_makes_room_with_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is worked out after a refusal goes before the records of those who live."""
    monkeypatch.setattr(history, "MAX_ROWS", 3)
    remember(database, entry("lives", life="r-0"), entry("refused", kind=Kind.REFUSED))
    remember(database, entry("table", kind=Kind.CONSIDERED))
    remember(database, entry("more", life="r-0"), entry("and more", life="r-0"))

    assert told(database, "r-0", "r-1") == ["lives", "more", "and more"]


def test_what_was_written_since_a_number(database: Database) -> None:
    """The newest after it, oldest first, without kinds that nobody wants; the number of the last is that to go on."""
    remember(database, entry("one"), entry("asked", kind=Kind.ASKED), entry("two"))
    found, last = database.read(since, 0, [Kind.ASKED])
    assert [record.sentences[0] for record in found] == ["one", "two"]

    remember(database, entry("three"))
    found, newer = database.read(since, last, [])
    assert ([record.sentences[0] for record in found], newer > last) == (["three"], True)
    assert database.read(since, newer, []) == ([], newer)


def test_a_number_of_another_database_is_none(database: Database) -> None:
    """Who follows a database that was set aside gets what is in the new one."""
    assert database.read(since, 7, []) == ([], 0)
    remember(database, entry("one"))
    assert [record.sentences[0] for record in database.read(since, 7, [])[0]] == ["one"]


def test_the_namespace_with_the_most_makes_room_first(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short-lived containers of one do not push out what happened in the others, by number or by size."""
    monkeypatch.setattr(history, "MAX_ROWS", 12)
    for number in range(4):
        remember(database, entry(f"{number}", kind=Kind.GONE, life=f"b-{number}", title="bank/db/main"))
    for number in range(200):
        remember(database, entry(f"{number}", kind=Kind.GONE, life=f"s-{number}"))

    assert told(database, *(f"b-{number}" for number in range(4))) == ["0", "1", "2", "3"]
    assert told(database, *(f"s-{number}" for number in range(200))) == [f"{number}" for number in range(192, 200)]

    monkeypatch.setattr(history, "MAX_BYTES", 2_000)
    remember(database, *(entry("x" * 900, kind=Kind.GONE, life=f"x-{number}") for number in range(3)))
    assert told(database, *(f"b-{number}" for number in range(4))) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("kind", [Kind.GRANTED, Kind.GONE], ids=["they live", "they ended"])
def test_a_namespace_with_many_that_live_makes_room_itself(
    database: Database, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """It does not push out what happened in others, whose containers live or ended: neither by number nor by size."""
    monkeypatch.setattr(history, "MAX_ROWS", 12)
    for number in range(3):
        remember(database, entry(f"{number}", kind=kind, life=f"b-{number}", title="bank/db/main"))
    for number in range(200):
        remember(database, entry(f"{number}", kind=Kind.GRANTED, life=f"s-{number}"))

    assert told(database, *(f"b-{number}" for number in range(3))) == ["0", "1", "2"]
    assert told(database, *(f"s-{number}" for number in range(200))) == [f"{number}" for number in range(191, 200)]

    monkeypatch.setattr(history, "MAX_BYTES", 2_000)
    remember(database, *(entry("x" * 900, kind=Kind.GRANTED, life=f"x-{number}") for number in range(3)))
    assert told(database, *(f"b-{number}" for number in range(3))) == ["0", "1", "2"]


def test_records_of_one_namespace(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found behind any number of others; a name that only begins like it is another one."""
    monkeypatch.setattr(history, "MAX_FOUND", 2)
    remember(database, entry("found", title="bank/db/main"), entry("node", title="", life=""))
    remember(database, *(entry("other", title=f"{name}/db/main") for name in ("bank2", "ban", "shop", "bank-a")))

    found, last = database.read(since, 0, [], "bank")

    assert [record.sentences[0] for record in found] == ["found"]
    assert database.read(since, last, [], "bank")[0] == []
