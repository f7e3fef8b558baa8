"""Databases of every older version become one of this version, with everything that they hold."""

import sqlite3
from pathlib import Path

import pytest

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.sim.machines import machine
from criproxy.store.database import Database
from criproxy.store.record import Kind, Record
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
    history = database.history("r1")
    gone = database.find("shop/old/main")
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
