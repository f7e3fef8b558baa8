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

from criproxy.model.controls import Controls
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Applied, CpuQuota, Grant, Kept
from criproxy.model.incident import Action, Excess, Incident, Quantity, Use
from criproxy.model.node import Node, Place, Wish
from criproxy.model.record import Kind, Record
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import Container, ContainerState, Desired, Miss, Missed, Pod, QosClass, Sizes
from criproxy.simulate.hosts import machine
from criproxy.store import configurations
from criproxy.store.configurations import LAST_GOOD_NAME as LAST_GOOD
from criproxy.store.configurations import TRIED_NAME as TRIED
from criproxy.store.configurations import GoodFile, Tried, read_good, read_tried, write_good, write_tried
from criproxy.store.database import Database
from criproxy.store.history import find
from criproxy.store.reader import open_reader
from criproxy.store.rows import QUOTA_INCIDENTS, changes
from criproxy.store.rows import tables as all_tables
from criproxy.store.schema import BESIDE, VERSION

MACHINE = machine()
EMPTY = Node(MACHINE)
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
ROWS = """
    INSERT INTO pods VALUES
        ('s', 'u', 'web', 'shop', 2, 'Burstable', '/kubepods/burstable/podu', '{"app": "web"}',
         '{"memory-type.criproxy.io/pod": "dram"}', 2500, 0),
        ('t', 'v', 'old', 'shop', 0, 'BestEffort', '', '{}', '{}', 0, 1);
    INSERT INTO containers VALUES
        ('id1', 's', 'main', 1, 'web', 'shop', 'Burstable', 2000, 2000, 1073741824, 'running', 'r1',
         536870912, 536875008, '1;0-1', 1, 200000, 100000, 1, '{"sizes": {"cpu_milli": 3000}, "since_s": 4.0}', ''),
        ('id2', 's', 'side', 0, 'web', 'shop', 'Burstable', 250, NULL, NULL, 'created', '',
         NULL, NULL, '', 0, NULL, NULL, 0, '', '{"why": "unfit", "since_s": 5.0}');
    INSERT INTO grants VALUES
        ('id1', '1-2', '0-1', '1-2,5', 'pool0', '1', '0', 'lifted'), ('id2', '0,3', '', '', 'default', '', '', 'left');
    INSERT INTO applied VALUES ('id1', '1-2', '0-1', 1), ('id2', '0,3', '', 0);
    INSERT INTO kept VALUES ('u', '{"init": "6"}');
    INSERT INTO former VALUES ('id1', '1', '0', '1', '', '', '', 'left');
    INSERT INTO incidents VALUES ('nvidia/GPU-a/1.500',
        '{"device_class": "nvidia", "card": "GPU-a", "since_s": 1.5, "reason": "XID 79", "action": "stop",
          "containers": {"r1": "stopped"}}');
    INSERT INTO quota_incidents VALUES ('nvidia/GPU-b/2.500/memory/r2',
        '{"device_class": "nvidia", "card": "GPU-b", "since_s": 2.5, "action": "stop", "containers": {"r2": "stopping"},
          "excess": {"life": "r2", "quantity": "memory", "used": 9000, "allowed": 8192}}');
    INSERT INTO meta VALUES ('configuration', 'abc'), ('released', 'criproxy release, today');
    INSERT INTO decisions VALUES
        (1, 1.5, 'id1', 'shop/web/main', 'because\nits card', 'granted', 'r1', '{"cpus":"1-2","moved":3}', 0);
"""
"""A node that uses every table, as 0.1.0 has written it, and what it is."""
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
POD = Pod(
    key="s",
    uid="u",
    name="web",
    namespace="shop",
    attempt=2,
    qos=QosClass.BURSTABLE,
    cgroup_parent="/kubepods/burstable/podu",
    labels={"app": "web"},
    annotations={"memory-type.criproxy.io/pod": "dram"},
    cpu_total_milli=2500,
)
MAIN = Container(
    key="id1",
    pod="s",
    name="main",
    attempt=1,
    pod_name="web",
    namespace="shop",
    qos=QosClass.BURSTABLE,
    cpu_milli=2000,
    cpu_limit_milli=2000,
    cpu_quota=CfsQuota(200000, 100000),
    memory_limit_bytes=1 << 30,
    memory_request_bytes=Interval(1 << 29, (1 << 29) + 4096),
    state=ContainerState.RUNNING,
    reservation="r1",
    hints=(frozenset({1}), frozenset({0, 1})),
    warm=True,
    stays=True,
    desired=Desired(sizes=Sizes(cpu_milli=3000), since_s=4.0),
)
SIDE = Container(
    key="id2",
    pod="s",
    name="side",
    pod_name="web",
    namespace="shop",
    qos=QosClass.BURSTABLE,
    cpu_milli=250,
    state=ContainerState.CREATED,
    missed=Missed(why=Miss.UNFIT, since_s=5.0),
)
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


NODE = Node(
    MACHINE,
    pods={"s": POD, "t": Pod(key="t", uid="v", name="old", namespace="shop", stopped=True)},
    containers={"id1": MAIN, "id2": SIDE},
    grants={
        "id1": Grant(cpus(1, 2), cpus(0, 1), cpus(1, 2, 5), "pool0", cpus(1), cpus(0), CpuQuota.LIFTED),
        "id2": Grant(cpus(0, 3), cpus(), pool="default"),
    },
    applied={"id1": Applied(cpus(1, 2), cpus(0, 1), lifted=True), "id2": Applied(cpus(0, 3), cpus())},
    kept={"u": Kept({"init": cpus(6)})},
    former={"id1": Grant(cpus(1), cpus(0), cpus(1))},
    incidents={each.key: each for each in (CARD, QUOTA)},
    released="criproxy release, today",
    configuration="abc",
)


def saved(folder: Path, node: Node, before: Node = EMPTY) -> None:
    """Write *node* as the daemon does."""
    with closing(Database(folder)) as database:
        database.save(before, node, [])


def loaded(folder: Path) -> Node:
    """What a daemon that starts finds."""
    with closing(Database(folder)) as database:
        assert database.set_aside is None
        return database.load(MACHINE)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return the node that is on disk as N has written it."""
    Database(tmp_path).close()
    execute(tmp_path, ROWS)
    return NODE


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
    with closing(Database(folder)) as database:
        assert database.set_aside
        return database.load(MACHINE)


def test_every_value_is_read_as_it_was_written(tmp_path: Path, node: Node) -> None:
    """By a daemon, and by whoever asks while none runs; also where there are no tables beside yet."""
    execute(tmp_path, "".join(f"DROP TABLE {each};" for each in ("of_pod", "kubelet_files", "controls")))
    with open_reader(tmp_path) as reader:
        assert reader.node(MACHINE) == node
        (record,) = find(reader.connection, "r1")
    said = Record(1.5, "id1", "shop/web/main", Kind.GRANTED, ("because", "its card"), "r1", {"cpus": "1-2", "moved": 3})
    assert (record, loaded(tmp_path)) == (said, node)
    after = node.replace(released="")
    saved(tmp_path, after, node)
    assert loaded(tmp_path) == after


def test_incidents_of_quotas_are_apart(tmp_path: Path) -> None:
    """A criproxy that knows none would take a row among those of cards for a sick card, and stop all that use it."""
    both = EMPTY.replace(incidents=NODE.incidents)
    saved(tmp_path, both)
    assert [key for key, _ in rows(tmp_path, "SELECT * FROM incidents")] == [CARD.key]
    assert loaded(tmp_path) == both

    more = both.replace(incidents={**both.incidents, QUOTA.key: replace(QUOTA, ended=True)})
    other = both.replace(incidents={**both.incidents, QUOTA.key: replace(QUOTA, excess=None)})
    assert {table.name: changes(table, both, more) for table in all_tables()}["incidents"] == ([], [])
    assert changes(QUOTA_INCIDENTS, both, more) == ([QUOTA.key], [])
    assert changes(QUOTA_INCIDENTS, both, other) == ([], [QUOTA.key])


def test_everything_is_as_before(newer: Path, node: Node) -> None:
    """Places, release, kept CPUs, refused resizes, incidents and the history are what N had written."""
    assert loaded(newer) == node
    with open_reader(newer) as reader:
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

    assert (loaded(newer), rows(newer, "SELECT * FROM planted")) == (after, [("id1", "one"), ("id2", "two")])
    assert rows(newer, "SELECT value FROM meta WHERE key = 'planted'") == [("here",)]
    assert rows(newer, "SELECT owner FROM planted WHERE owner NOT IN (SELECT key FROM containers)") == [("id2",)]


CONTROLLED = NODE.replace(
    containers={**NODE.containers, "id2": replace(SIDE, kubelet_files=("memory.high",))},
    grants={key: replace(each, controls=Controls((("cpu.weight", "200"),))) for key, each in NODE.grants.items()},
    former={key: replace(each, controls=Controls(classes=(("rdt", "gold"),))) for key, each in NODE.former.items()},
)
"""With what classes set, which is beside."""


def test_what_classes_set_is_beside(tmp_path: Path) -> None:
    """It comes back as it was written; N does not see it, and what it takes away has none any more."""
    saved(tmp_path, CONTROLLED)
    assert loaded(tmp_path) == CONTROLLED
    saved(tmp_path, NODE, CONTROLLED)
    assert (loaded(tmp_path), rows(tmp_path, "SELECT * FROM controls")) == (NODE, [])

    saved(tmp_path, CONTROLLED, NODE)
    execute(tmp_path, "DELETE FROM grants WHERE key = 'id1'; DELETE FROM former; UPDATE grants SET cpus = '5'")
    after = loaded(tmp_path)
    assert after.grants == {"id2": replace(CONTROLLED.grants["id2"], cpus=cpus(5))}
    assert rows(tmp_path, "SELECT key FROM controls") == [("id2",)]
    assert rows(tmp_path, "SELECT * FROM former_controls") == []


def test_what_classes_set_is_written_only_where_it_changes(tmp_path: Path) -> None:
    """A move of a container writes its grant, and nothing beside it."""
    moved = CONTROLLED.replace(grants={key: replace(each, cpus=cpus(6)) for key, each in CONTROLLED.grants.items()})
    written = {table.name: changes(table, CONTROLLED, moved) for table in all_tables()}
    assert (written["controls"], written["kubelet_files"]) == (([], []), ([], []))
    assert set(written["grants"][0]) == {"id1", "id2"}


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
    assert loaded_anew(newer) == EMPTY


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

    assert (read_good(tmp_path), read_tried(tmp_path)) == (good, tried)
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
    found = {name: [row[1] for row in rows(tmp_path, f"PRAGMA table_info({name})")] for name in COLUMNS}

    assert VERSION == LAST_NUMBER
    assert {name: " ".join(map(str, columns)) for name, columns in found.items()} == COLUMNS


@pytest.mark.parametrize("kind", WORDS)
def test_no_word_is_added(kind: type[Enum]) -> None:
    """0.1.0 cannot read a row with another one, and would set the database aside for it."""
    assert " ".join(str(each.value) for each in kind) == WORDS[kind]


def test_what_is_not_needed_is_given_up(tmp_path: Path) -> None:
    """Indexes of 0.1.0 with a page for each row; the one that its writes need stays, and it finds the same without."""
    Database(tmp_path).close()
    execute(tmp_path, "CREATE INDEX decisions_by_key ON decisions (key)")
    assert loaded(tmp_path) == EMPTY
    found = rows(tmp_path, "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'decisions'")
    assert found == [("decisions_by_life",), ("decisions_ended",)]


def test_a_database_with_larger_pages_keeps_them(tmp_path: Path) -> None:
    """0.1.0 has made it so; a new one has smaller pages, which 0.1.0 reads as well."""
    execute(tmp_path, "PRAGMA page_size = 4096; VACUUM")
    saved(tmp_path, NODE)
    assert (rows(tmp_path, "PRAGMA page_size"), loaded(tmp_path)) == ([(4096,)], NODE)
    (tmp_path / "criproxy.db").unlink()
    saved(tmp_path, NODE)
    assert (rows(tmp_path, "PRAGMA page_size"), loaded(tmp_path)) == ([(2048,)], NODE)


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

    assert (forbidden(BESIDE), forbidden(planted)) == ([], planted)
