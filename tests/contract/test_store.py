"""A state database that an older criproxy has written is read: what is exclusive stays exclusive over an upgrade."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.conftest import RichNode
from tests.contract.programs import wait_until

DUMP = Path(__file__).with_name("store-29440991.sql")
PLACES = {
    "owner": ("running", "1-2", "1-2", "0"),
    "ended": ("exited", "", "", ""),
    "sharer": ("running", "0,4-7", "", "0-1"),
    "best-effort": ("running", "0,4-7", "", "0-1"),
    "vgpu": ("running", "0,4-7", "", "0-1"),
}
"""Pod → the state of its container, its CPUs, those that are exclusive, and its NUMA nodes."""
SENTENCE = "default/owner/main gets exclusive CPUs 1-2: its pod is Guaranteed and it asks for 2"


@pytest.fixture
def older(tmp_path: Path) -> RichNode:
    """A node with the database, on which nothing runs."""
    found = RichNode(tmp_path)
    found.state.mkdir()
    with closing(sqlite3.connect(found.state / "criproxy.db")) as connection:
        connection.executescript(DUMP.read_text())
    return found


def test_containers_and_grants_are_read(older: RichNode) -> None:
    """``status`` shows each container with its CPUs, what is kept for a pod, and who was refused."""
    answer = older.ask("status", "--format", "json").json

    found = [(each["state"], each["cpus"], each["exclusive_cpus"], each["mems"]) for each in answer["containers"]]
    assert dict(zip([each["pod"] for each in answer["containers"]], found, strict=True)) == PLACES
    assert all(each["in_place"] for each in answer["containers"])
    assert [(each["pod"], each["cpus"]) for each in answer["kept"]] == [("default/ended", "3")]
    assert [each["container"] for each in answer["refusals"]] == ["default/too-big/main"]
    assert answer["cpus"]["exclusive"] == "1-3"


def test_the_history_is_read(older: RichNode) -> None:
    """``explain`` tells why a container is where it is, and which card it has."""
    owner = older.ask("explain", "default/owner/main", "--format", "json").json
    vgpu = older.ask("explain", "default/vgpu/main", "--format", "json").json

    assert owner["why"] == [SENTENCE, "memory from NUMA node 0, near its CPUs"]
    assert [each["kind"] for each in owner["events"]] == ["granted", "created", "started"]
    assert [(each["cards"], each["quota"]["memory_mib"]) for each in vgpu["devices"]] == [(["npu0"], 1024)]


def test_the_daemon_goes_on_with_it(older: RichNode) -> None:
    """A daemon keeps the history, sets no database aside, and sees that the runtime has no containers any more."""
    with older.runtime_serving(), older.serving():
        wait_until(lambda: not older.containers(), older.log.read_text)
        status = older.ask("status", "--format", "json").json
        owner = older.ask("explain", "default/owner/main", "--format", "json").json

    assert status["kept"] == []
    assert SENTENCE in owner["events"][0]["sentences"]
    assert [path.name for path in older.state.glob("criproxy.db.*Z")] == []
