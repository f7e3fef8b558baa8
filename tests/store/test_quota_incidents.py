"""Incidents of quotas are kept apart from those of cards: an older criproxy would stop all that use the card."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.incident import Action, Excess, Incident, Quantity, Use
from criproxy.model.node import Node
from criproxy.model.text.plain import to_plain
from criproxy.simulate.hosts import machine
from criproxy.store.database import Database
from criproxy.store.reader import open_reader
from criproxy.store.rows import QUOTA_INCIDENTS, changes, tables
from criproxy.store.schema import MIGRATIONS, VERSION

MACHINE = machine()
EMPTY = Node(MACHINE)
CARD = Incident(
    device_class="nvidia",
    card="GPU-a",
    since_s=1.5,
    reason="XID 79",
    action=Action.STOP,
    containers={"r1": Use.STOPPED},
)
QUOTA = Incident(
    device_class="nvidia",
    card="GPU-b",
    since_s=2.5,
    action=Action.STOP,
    containers={"r2": Use.STOPPING},
    excess=Excess(life="r2", quantity=Quantity.MEMORY, used=9000, allowed=8192),
)
BOTH = EMPTY.replace(incidents={each.key: each for each in (CARD, QUOTA)})


def saved(folder: Path, node: Node, before: Node = EMPTY) -> None:
    """Write *node* as the daemon does."""
    database = Database(folder)
    database.save(before, node, [])
    database.close()


def loaded(folder: Path) -> Node:
    """What a daemon that starts finds."""
    database = Database(folder)
    node = database.load(MACHINE)
    assert database.set_aside is None
    database.close()
    return node


def shared(folder: Path) -> dict[str, str]:
    """What an older criproxy reads: for it, each row is an unhealthy card."""
    connection = sqlite3.connect(folder / "criproxy.db")
    rows = dict(connection.execute("SELECT * FROM incidents").fetchall())
    connection.close()
    return rows


def written_by_an_older_one(folder: Path, *incidents: Incident) -> None:
    """Let an older criproxy, which puts all incidents into one table, have the database for a while."""
    connection = sqlite3.connect(folder / "criproxy.db")
    rows = [(each.key, json.dumps(to_plain(each))) for each in incidents]
    connection.executemany("INSERT OR REPLACE INTO incidents VALUES (?, ?)", rows)
    connection.commit()
    connection.close()


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A database as criproxy left it before there was the table beside."""
    connection = sqlite3.connect(tmp_path / "criproxy.db")
    connection.executescript("".join(MIGRATIONS) + f"PRAGMA user_version = {VERSION};")
    connection.close()
    return tmp_path


def test_an_older_criproxy_sees_none_of_them(tmp_path: Path) -> None:
    """It opens the database, whose version it knows, and finds the incidents of cards alone."""
    saved(tmp_path, BOTH)

    connection = sqlite3.connect(tmp_path / "criproxy.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()
    assert list(shared(tmp_path)) == [CARD.key]
    assert loaded(tmp_path) == BOTH


def test_those_among_the_cards_are_moved_once(older: Path) -> None:
    """After an upgrade all are known as before, and nothing is left for an older criproxy to act on."""
    written_by_an_older_one(older, CARD, QUOTA)

    assert loaded(older) == BOTH
    assert list(shared(older)) == [CARD.key]
    assert loaded(older) == BOTH


def test_nothing_is_lost_over_a_downgrade(tmp_path: Path) -> None:
    """What was known before it is there again, beside what the older criproxy has written; its rows are newer."""
    fresh = replace(QUOTA, since_s=9.0)
    ended = replace(QUOTA, ended=True, containers={"r2": Use.STOPPED})
    kept = replace(QUOTA, card="GPU-c")
    saved(tmp_path, BOTH.replace(incidents={**BOTH.incidents, kept.key: kept}))

    written_by_an_older_one(tmp_path, fresh, ended)

    assert loaded(tmp_path).incidents == {each.key: each for each in (CARD, kept, ended, fresh)}
    assert list(shared(tmp_path)) == [CARD.key]


def test_what_is_gone_stays_gone(older: Path) -> None:
    """An incident that was moved and has ended does not come back."""
    written_by_an_older_one(older, CARD, QUOTA)
    before = loaded(older)
    after = EMPTY.replace(incidents={CARD.key: CARD})
    saved(older, after, before)

    assert loaded(older) == after


def test_a_reader_sees_them_before_they_are_moved(older: Path) -> None:
    """Whoever asks while no daemon runs gets all incidents, and changes nothing."""
    written_by_an_older_one(older, CARD, QUOTA)
    before = (older / "criproxy.db").read_bytes()

    with open_reader(older) as reader:
        assert reader.node(MACHINE) == BOTH
    assert (older / "criproxy.db").read_bytes() == before


@pytest.mark.parametrize("row", ["{", "[]", '"excess"', "7"])
def test_a_row_that_cannot_be_read_is_not_moved(older: Path, row: str) -> None:
    """The database is set aside for it, as for a row of any other table."""
    connection = sqlite3.connect(older / "criproxy.db")
    connection.execute("INSERT INTO incidents VALUES ('k', ?)", (row,))
    connection.commit()
    connection.close()

    database = Database(older)
    database.close()

    assert database.set_aside is not None
    assert "its table incidents cannot be read" in database.set_aside


def test_an_incident_is_in_one_table() -> None:
    """One that changes is written where it is, and an incident of the other kind with its key goes out of there."""
    more = EMPTY.replace(incidents={CARD.key: CARD, QUOTA.key: replace(QUOTA, ended=True)})
    other = EMPTY.replace(incidents={CARD.key: CARD, QUOTA.key: replace(QUOTA, excess=None)})

    assert {table.name: changes(table, BOTH, more) for table in tables()}["incidents"] == ([], [])
    assert changes(QUOTA_INCIDENTS, BOTH, more) == ([QUOTA.key], [])
    assert changes(QUOTA_INCIDENTS, BOTH, other) == ([], [QUOTA.key])
