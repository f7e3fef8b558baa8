"""What the device plugin asks the daemon, which may be absent, silent, slow or something else."""

import json
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from criproxy.deviceplugin.daemon_client.asking import PendingReports, ask, free_cpus
from criproxy.process.control_client import DaemonRefuses, NoDaemon

LIMIT_S = 60.0


@pytest.fixture
def path(folder: Path) -> str:
    """Return where the daemon would listen."""
    return str(folder / "control.sock")


def listening(path: str) -> socket.socket:
    """Return a socket that listens, and that nobody serves."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(1)
    return server


def answering(path: str, answer: bytes) -> socket.socket:
    """Answer one request."""
    server = listening(path)

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server


def result(value: object) -> bytes:
    """Return the answer of a daemon."""
    return json.dumps({"result": value}).encode() + b"\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(result({"free_milli": {"0": 1500, "1": 250}}), {0: 1500, 1: 250}, id="free"),
        pytest.param(result({"free_milli": None}), {}, id="places-nothing"),
        pytest.param(result({"free_milli": {"0": "many"}}), {}, id="no-number"),
        pytest.param(result([]), {}, id="list"),
        pytest.param(b'{"error": "this daemon knows no command", "exit_status": 2}\n', {}, id="older-daemon"),
        pytest.param(b'{"error": 1}\n', {}, id="error-without-status"),
        pytest.param(b"[]\n", {}, id="no-object"),
        pytest.param(b"[" * 100_000 + b"\n", {}, id="deep"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", {}, id="another-program"),
        pytest.param(b"", {}, id="ends"),
    ],
)
def test_free_cpus_are_those_that_the_daemon_tells(path: str, answer: bytes, expected: dict[int, int]) -> None:
    """Whatever else it says, the choice among cards goes on without."""
    with closing(answering(path, answer)):
        assert free_cpus(path, LIMIT_S) == expected


def test_an_absent_daemon_has_no_free_cpus(path: str) -> None:
    """Neither a missing socket nor one that nobody serves any more is waited for."""
    assert free_cpus(path, LIMIT_S) == {}
    listening(path).close()
    assert free_cpus(path, LIMIT_S) == {}


def test_a_silent_daemon_is_not_waited_for(path: str) -> None:
    """The limit is that of the whole question."""
    with closing(listening(path)):
        assert free_cpus(path) == {}
        with pytest.raises(NoDaemon, match="did not answer within"):
            ask(path, "device-incident", {}, 0.01)


@pytest.mark.parametrize(("status", "wrong"), [(1, False), (2, True)])
def test_a_refusal_says_whether_it_is_of_use_to_ask_again(path: str, status: int, wrong: bool) -> None:
    """A request that is wrong stays wrong; what could not be stored can be repeated."""
    answer = json.dumps({"error": "not stored", "exit_status": status}).encode() + b"\n"
    with closing(answering(path, answer)), pytest.raises(DaemonRefuses, match="not stored") as refused:
        ask(path, "device-incident", {}, LIMIT_S)

    assert refused.value.wrong is wrong


@pytest.fixture
def pending() -> PendingReports[str, object]:
    """Return a collection that keeps at most two reports."""
    return PendingReports(maximum=2)


def test_a_newer_report_about_the_same_key_replaces_the_older_one(pending: PendingReports[str, object]) -> None:
    """It becomes the newest of all reports."""
    for key, report in (("a", "fails"), ("b", "fails"), ("a", "works")):
        pending.add(key, report)

    assert [*pending.items()] == [("b", "fails"), ("a", "works")]
    assert (len(pending), pending.get("a"), "c" in pending) == (2, "works", False)


def test_the_number_of_reports_is_bounded(pending: PendingReports[str, object]) -> None:
    """The oldest report is dropped; a replacement drops none."""
    for key in ("a", "b", "b", "c"):
        pending.add(key, key)

    assert [*pending.items()] == [("b", "b"), ("c", "c")]


def test_only_the_report_that_was_sent_is_removed(pending: PendingReports[str, object]) -> None:
    """An equal report that was added meanwhile stays: it is about a later change."""
    sent, newer = ["fails"], ["fails"]
    pending.add("a", sent)
    pending.add("a", newer)

    assert not pending.remove("a", sent)
    assert pending.remove("a", newer)
    assert not pending.remove("a", newer)
    assert len(pending) == 0
