"""Databases of every older version become one of this version, with everything that they hold."""

import sqlite3
from pathlib import Path

import pytest

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.record import Kind, Record
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.simulate.hosts import machine
from criproxy.store.database import Database
from criproxy.store.history import find
from criproxy.store.schema import MIGRATIONS, VERSION

ROWS_OF_VERSION_1 = """
    INSERT INTO pods VALUES ('s', 'u', 'web', 'shop', 2, 'Guaranteed', '/kubepods/podu');
    INSERT INTO containers VALUES
        ('id1', 's', 'main', 1, 'web', 'shop', 'Guaranteed', 2000, 2000, 1024, 'running', 'r1'),
        ('id2', 's', 'side', 0, 'web', 'shop', 'Guaranteed', 250, NULL, NULL, 'created', '');
    INSERT INTO grants VALUES ('id1', '1-2', '0', '1-2');
    INSERT INTO applied VALUES ('id1', '1-2', '0');
    INSERT INTO decisions (at_s, key, container, reasons) VALUES
        (1.5, 'id1', 'shop/web/main', 'because'),
        (1.0, 'id0', 'shop/old/main', 'it was before'),
        (2.0, '', '', 'the machine has changed');
"""
ROWS_OF_VERSION_12 = """
    INSERT INTO pods VALUES
        ('s', 'u', 'web', 'shop', 2, 'Burstable', '/kubepods/burstable/podu', '{"app": "web"}',
         '{"memory-type.criproxy.io/pod": "dram"}');
    INSERT INTO containers VALUES
        ('id1', 's', 'main', 1, 'web', 'shop', 'Burstable', 2000, 2000, 1073741824, 'running', 'r1',
         536870912, 536875008, '1;0-1', 1, 200000, 100000, 1),
        ('id2', 's', 'side', 0, 'web', 'shop', 'Burstable', 250, NULL, NULL, 'created', '',
         NULL, NULL, '', 0, NULL, NULL, 0);
    INSERT INTO grants VALUES
        ('id1', '1-2', '0-1', '1-2,5', 'pool0', '1', '0', 'lifted'), ('id2', '0,3', '', '', 'default', '', '', 'left');
    INSERT INTO applied VALUES ('id1', '1-2', '0-1', 1), ('id2', '0,3', '', 0);
    INSERT INTO meta VALUES ('configuration', 'abc'), ('released', 'true');
    INSERT INTO decisions VALUES
        (1, 1.5, 'id1', 'shop/web/main', 'because\nits card', 'granted', 'r1', '{"cpus":"1-2","moved":3}', 0),
        (2, 1.75, 'id2', 'shop/web/side', 'shares', 'granted', 'id2', '{}', 0),
        (3, 2.0, '', '', 'the machine has changed', 'node', '', '{}', 1);
"""
"""As the store of that version wrote them, the last one before CPUs were kept for pods."""


def make(path: Path, version: int, rows: str) -> None:
    """A database as criproxy left it when *version* was the newest."""
    connection = sqlite3.connect(path)
    connection.executescript("".join(MIGRATIONS[:version]) + rows + f"PRAGMA user_version = {version};")
    connection.close()


def test_version_1_is_carried_over(tmp_path: Path) -> None:
    """Everything that was known stays; memory requests, which that version did not keep, are unknown."""
    make(tmp_path / "criproxy.db", 1, ROWS_OF_VERSION_1)

    database = Database(tmp_path)
    node = database.load(machine())
    history = database.read(find, "r1")
    gone = database.read(find, "shop/old/main")
    database.close()

    own = parse_cpuset("1-2")
    main = Container(
        key="id1",
        pod="s",
        name="main",
        attempt=1,
        pod_name="web",
        namespace="shop",
        qos=QosClass.GUARANTEED,
        cpu_milli=2000,
        cpu_limit_milli=2000,
        memory_limit_bytes=1024,
        state=ContainerState.RUNNING,
        reservation="r1",
    )
    assert database.set_aside is None
    assert node.pods["s"] == Pod(
        key="s",
        uid="u",
        name="web",
        namespace="shop",
        attempt=2,
        qos=QosClass.GUARANTEED,
        cgroup_parent="/kubepods/podu",
    )
    assert node.containers["id1"] == main
    assert node.containers["id2"].memory_request_bytes is None
    assert node.grants == {"id1": Grant(own, frozenset({0}), own)}
    assert node.applied == {"id1": Applied(own, frozenset({0}))}
    assert history == [Record(1.5, "id1", "shop/web/main", Kind.GRANTED, ("because",), "r1")]
    assert [record.sentences for record in gone] == [("it was before",)]


def test_version_12_is_carried_over(tmp_path: Path) -> None:
    """Every value of that version is read as it was written; what is new since then says nothing of anybody."""
    make(tmp_path / "criproxy.db", 12, ROWS_OF_VERSION_12)

    database = Database(tmp_path)
    node = database.load(machine())
    history = [*database.read(find, "r1"), *database.read(find, "id2")]
    database.close()

    assert database.set_aside is None
    assert node.pods == {
        "s": Pod(
            key="s",
            uid="u",
            name="web",
            namespace="shop",
            attempt=2,
            qos=QosClass.BURSTABLE,
            cgroup_parent="/kubepods/burstable/podu",
            labels={"app": "web"},
            annotations={"memory-type.criproxy.io/pod": "dram"},
        )
    }
    assert node.containers["id1"] == Container(
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
    )
    assert node.containers["id2"] == Container(
        key="id2",
        pod="s",
        name="side",
        pod_name="web",
        namespace="shop",
        qos=QosClass.BURSTABLE,
        cpu_milli=250,
        state=ContainerState.CREATED,
    )
    own, both, shared = frozenset({1, 2}), frozenset({0, 1}), frozenset({0, 3})
    assert node.grants == {
        "id1": Grant(own, both, own | {5}, "pool0", frozenset({1}), frozenset({0}), CpuQuota.LIFTED),
        "id2": Grant(shared, frozenset(), pool="default"),
    }
    assert node.applied == {"id1": Applied(own, both, lifted=True), "id2": Applied(shared, frozenset())}
    assert not node.kept
    assert not node.former
    assert (node.configuration, node.released) == ("abc", "true")
    assert history == [
        Record(1.5, "id1", "shop/web/main", Kind.GRANTED, ("because", "its card"), "r1", {"cpus": "1-2", "moved": 3}),
        Record(1.75, "id2", "shop/web/side", Kind.GRANTED, ("shares",), "id2"),
    ]


@pytest.mark.parametrize("version", range(VERSION + 1))
def test_every_version_ends_in_the_same_tables(tmp_path: Path, version: int) -> None:
    """However old a database is, its tables become those of a new one."""
    make(tmp_path / "criproxy.db", version, "")
    database = Database(tmp_path)
    database.close()

    assert database.set_aside is None
    assert tables(tmp_path / "criproxy.db") == tables_of_a_new_one(tmp_path / "new")


def tables_of_a_new_one(folder: Path) -> dict[str, list[str]]:
    """Tables and columns of a fresh database."""
    folder.mkdir()
    Database(folder).close()
    return tables(folder / "criproxy.db")


def tables(path: Path) -> dict[str, list[str]]:
    """The columns of each table, in order."""
    connection = sqlite3.connect(path)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}
    connection.close()
    return found
