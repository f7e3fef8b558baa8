"""What version N finds of a newer one: it opens the database, and leaves alone what it does not know.

The tables and words here are those of 0.1.0. If a test fails because you have added one, you have found what the older
version cannot read: docs/decisions/0042-downgrades.md says what to do instead.
"""

import json
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import CpuQuota, Grant, Kept
from criproxy.model.incident import Action, Quantity, Use
from criproxy.model.node import Node, Place, Wish
from criproxy.model.record import Kind
from criproxy.model.workload import ContainerState, Desired, Miss, Missed, QosClass, Sizes
from criproxy.store import configurations
from criproxy.store.configurations import LAST_GOOD_NAME as LAST_GOOD
from criproxy.store.configurations import TRIED_NAME as TRIED
from criproxy.store.configurations import GoodFile, Tried, read_good, read_tried, write_good, write_tried
from criproxy.store.database import Database
from criproxy.store.history import find
from criproxy.store.reader import open_reader
from criproxy.store.schema import BESIDE, VERSION
from tests.store.test_quota_incidents import BOTH, CARD, EMPTY, MACHINE, QUOTA, loaded, saved
from tests.store.test_schema import ROWS_OF_VERSION_12, make, tables

LAST_NUMBER = 16
COLUMNS = {
    "pods": "key uid name namespace attempt qos cgroup_parent labels annotations cpu_total_milli stopped",
    "containers": "key pod name attempt pod_name namespace qos cpu_milli cpu_limit_milli memory_limit_bytes state"
    " reservation memory_request_low_bytes memory_request_high_bytes hints warm cpu_quota_us cpu_period_us stays"
    " desired missed",
    "grants": "key cpus mems exclusive pool home home_mems quota",
    "applied": "key cpus mems lifted",
    "kept": "key cpus",
    "former": "key cpus mems exclusive pool home home_mems quota",
    "incidents": "key incident",
    "quota_incidents": "key incident",
    "meta": "key value",
    "decisions": "id at_s key container reasons kind life facts ended",
}
WORDS: dict[type[Enum], str] = {
    QosClass: "Guaranteed Burstable BestEffort",
    ContainerState: "creating created running exited unknown",
    CpuQuota: "left lifted restored",
    Miss: "failed bypassed unfit",
    Action: "none annotate stop",
    Use: "uses stopping stopped killed",
    Quantity: "memory cores",
}
"""Those on disk. The kinds of records are not among them: one that is unknown is shown without its name."""
NEWER = """
    CREATE TABLE planted (owner TEXT PRIMARY KEY, said TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO planted VALUES ('id1', 'one'), ('id2', 'two');
    CREATE INDEX planted_names ON containers (name);
    INSERT INTO meta VALUES ('planted', 'here');
    UPDATE incidents SET incident = json_set(incident, '$.severity', 'high');
    UPDATE quota_incidents SET incident = json_set(incident, '$.excess.peak', 9999, '$.severity', 'low');
    UPDATE containers SET desired = json_set(desired, '$.by', 'vpa') WHERE desired <> '';
    UPDATE containers SET missed = json_set(missed, '$.tries', 3) WHERE missed <> '';
    INSERT INTO decisions (at_s, key, container, reasons, kind, life, facts, ended)
        VALUES (9.0, 'id1', 'shop/web/main', 'it was praised', 'praised', 'r1', '{"stars": [5]}', 0);
"""
"""What a made-up N + 1 adds to a database of N."""


def cpus(*numbers: int) -> CpuSet:
    """A set of CPUs."""
    return frozenset(numbers)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node that uses every table, and is on disk as N has written it."""
    make(tmp_path / "criproxy.db", 12, ROWS_OF_VERSION_12)
    before = loaded(tmp_path)
    containers = {
        "id1": replace(before.containers["id1"], desired=Desired(sizes=Sizes(cpu_milli=3000), since_s=4.0)),
        "id2": replace(before.containers["id2"], missed=Missed(why=Miss.UNFIT, since_s=5.0)),
    }
    after = before.replace(
        containers=containers,
        kept={"u": Kept({"init": cpus(6)})},
        former={"id1": Grant(cpus(1), cpus(0), cpus(1))},
        incidents=BOTH.incidents,
        released="criproxy release, today",
    )
    saved(tmp_path, after, before)
    return after


@pytest.fixture
def newer(tmp_path: Path, node: Node) -> Path:
    """Return the directory after N + 1 has had it."""
    execute(tmp_path, NEWER)
    return tmp_path


def execute(folder: Path, script: str) -> None:
    """Change the database as another program does."""
    with closing(sqlite3.connect(folder / "criproxy.db")) as connection:
        connection.executescript(script)


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    """Rows of the database."""
    with closing(sqlite3.connect(folder / "criproxy.db")) as connection:
        return connection.execute(query).fetchall()


def loaded_anew(folder: Path) -> Node:
    """What a daemon that sets the database aside finds in the new one."""
    database = Database(folder)
    node = database.load(MACHINE)
    database.close()
    assert database.set_aside
    return node


def test_everything_is_as_before(newer: Path, node: Node) -> None:
    """Places, release, kept CPUs, refused resizes, incidents and the history are what N had written."""
    assert loaded(newer) == node
    with open_reader(newer) as reader:
        assert reader.node(MACHINE) == node
        told = [(record.kind, record.sentences) for record in find(reader.connection, "shop/web/main")]

    assert told == [(Kind.GRANTED, ("because", "its card")), (Kind.NODE, ("it was praised",))]


def test_what_is_new_is_left_alone(newer: Path, node: Node) -> None:
    """N writes and deletes rows of its own; N + 1 finds its table again, and can tell whose rows are orphans."""
    after = node.replace(
        containers={"id1": replace(node.containers["id1"], cpu_milli=100)},
        grants={"id1": Grant(cpus(0), cpus(0))},
        applied={},
        released="",
    )
    saved(newer, after, node)

    assert loaded(newer) == after
    assert rows(newer, "SELECT * FROM planted") == [("id1", "one"), ("id2", "two")]
    assert rows(newer, "SELECT value FROM meta WHERE key = 'planted'") == [("here",)]
    assert rows(newer, "SELECT owner FROM planted WHERE owner NOT IN (SELECT key FROM containers)") == [("id2",)]


def test_an_incident_that_changes_stays_one(newer: Path, node: Node) -> None:
    """N writes such a row anew, without the keys that it does not know; the others keep theirs."""
    changed = replace(CARD, ended=True)
    saved(newer, node.replace(incidents={**node.incidents, CARD.key: changed}), node)

    assert loaded(newer).incidents == {CARD.key: changed, QUOTA.key: QUOTA}
    ((quota,),) = rows(newer, "SELECT incident FROM quota_incidents")
    assert json.loads(str(quota))["severity"] == "low"


@pytest.mark.parametrize("spoil", ["PRAGMA user_version = 99", "UPDATE incidents SET incident = '{}'"])
def test_a_database_that_is_set_aside_leaves_the_release(newer: Path, node: Node, spoil: str) -> None:
    """The runtime is asked for all else, but nobody else knows that containers are not to be placed."""
    execute(newer, spoil)
    found = loaded_anew(newer)

    assert found == EMPTY.replace(released=node.released, configuration=node.configuration)
    assert loaded(newer) == found


def test_a_database_that_is_set_aside_is_no_release(newer: Path, node: Node) -> None:
    """Without one, nothing is taken over: the configuration alone would say that containers are known."""
    saved(newer, node.replace(released=""), node)
    execute(newer, "PRAGMA user_version = 99")
    found = loaded_anew(newer)

    assert found == EMPTY


def with_more(file: Path) -> None:
    """Let N + 1 write a JSON file with keys that N does not know."""
    file.write_text(json.dumps({**json.loads(file.read_text()), "later": {"a": [1]}}))


def test_files_with_unknown_keys_are_read(tmp_path: Path) -> None:
    """The last good policy file, the configuration that is tried, and those that were in force."""
    good = GoodFile(text="policy: static\n", source="/p", configuration="c", available="0-3")
    tried = Tried(good=good, file_hash="h", begun_s=1.0, until_s=2.0, places={"id1": Place(Grant(cpus(1), cpus(0)))})
    once = configurations.InForceOnce(text="t", source="/p", hash="h", policy="static", at_s=1.0, how="file")
    tmp_path.chmod(0o700)
    write_good(tmp_path, good)
    write_tried(tmp_path, tried)
    configurations.add(tmp_path, once)

    for name in (LAST_GOOD, TRIED, f"{configurations.FOLDER}/000001.json"):
        with_more(tmp_path / name)

    assert read_good(tmp_path) == good
    assert read_tried(tmp_path) == tried
    assert configurations.read_all(tmp_path) == [replace(once, number=1)]


def test_places_of_earlier_and_later_versions_are_read(tmp_path: Path) -> None:
    """Those of an earlier one do not say what a container wanted; of a later one, what is unknown is ignored."""
    wish = Wish(cpu_limit_milli=2000, desired=Desired(sizes=Sizes(cpu_milli=9000)), missed=Missed(why=Miss.UNFIT))
    place = Place(Grant(cpus(1), cpus(0)), 2000, wish)
    tmp_path.chmod(0o700)
    write_tried(tmp_path, Tried(good=GoodFile(), places={"id1": place, "id2": Place(place.grant, 1000, Wish())}))
    said = json.loads((tmp_path / TRIED).read_text())
    assert read_tried(tmp_path) == Tried(
        good=GoodFile(), places={"id1": place, "id2": Place(place.grant, 1000, Wish())}
    )
    assert said["places"]["id1"].pop("wish")
    said["places"]["id2"] |= {"wish": {"later": 1}, "later": {}}
    (tmp_path / TRIED).write_text(json.dumps(said))

    read = read_tried(tmp_path)

    assert read is not None
    assert read.places == {"id1": Place(place.grant, 2000), "id2": Place(place.grant, 1000, Wish())}


def test_no_older_version_is_locked_out(tmp_path: Path) -> None:
    """The number of the schema, and the tables that 0.1.0 reads by the position of their columns, stay."""
    Database(tmp_path).close()
    found = tables(tmp_path / "criproxy.db")

    assert VERSION == LAST_NUMBER
    assert {name: " ".join(found[name]) for name in COLUMNS} == COLUMNS


@pytest.mark.parametrize("kind", WORDS)
def test_no_word_is_added(kind: type[Enum]) -> None:
    """0.1.0 cannot read a row with another one, and would set the database aside for it."""
    assert " ".join(str(each.value) for each in kind) == WORDS[kind]


def forbidden(statements: Iterable[str]) -> list[str]:
    """Those of `BESIDE` that 0.1.0 would notice."""
    return [each for each in statements if not re.match("CREATE (TABLE|INDEX) IF NOT EXISTS ", each)]


def test_what_is_beside_is_harmless() -> None:
    """Tables and indexes of other names: nothing that keeps 0.1.0 from writing its rows."""
    planted = [
        "CREATE UNIQUE INDEX IF NOT EXISTS names ON containers (name)",
        "CREATE TRIGGER IF NOT EXISTS planted AFTER INSERT ON pods BEGIN SELECT 1; END",
        "ALTER TABLE pods ADD COLUMN later TEXT NOT NULL DEFAULT ''",
    ]

    assert forbidden(BESIDE) == []
    assert forbidden(planted) == planted
