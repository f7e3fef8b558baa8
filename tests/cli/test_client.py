"""Asking the daemon on its control socket: what somebody at a terminal hears while it does not answer."""

import fcntl
import io
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from threading import Thread

import pytest

from criproxy.cli import client
from criproxy.cli.client import DEFAULT_CONTROL_SOCKET, NoDaemon, ask
from criproxy.store.store import LOCK_NAME
from tests.asking import criproxy
from tests.denied import WITHOUT_PRIVILEGES, closed

LIMIT_S = 60.0
ANSWER = b'{"result": "done"}\n'


@contextmanager
def daemon(path: Path, until: Callable[[], object], answer_bytes: bytes = ANSWER) -> Iterator[None]:
    """A daemon that answers one request when *until* has returned."""

    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.makefile("rb").readline()
            until()
            connection.sendall(answer_bytes)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=answer, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            thread.join(LIMIT_S)


@contextmanager
def terminal() -> Iterator[int]:
    """A terminal as standard error; its other end."""
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as stderr, redirect_stderr(stderr):  # noqa: PTH123 (a descriptor)
        yield ours
    os.close(ours)


def test_a_terminal_is_told_of_a_silent_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits, the command says for how long it will; the answer counts when it comes."""
    monkeypatch.setattr(client, "SILENT_S", 0.5)
    path, told = tmp_path / "control.sock", list[bytes]()

    def read_line() -> None:
        while not told or not told[-1].endswith(b"\n"):
            told.append(os.read(screen, 4096))

    with terminal() as screen, daemon(path, read_line):
        assert ask(str(path), "bypass", timeout_s=LIMIT_S) == "done"

    note = f"Note: the daemon on {path} has not answered yet; this command waits for 59.5 s more"
    assert b"".join(told).decode().rstrip() == note


def test_a_prompt_answer_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said before the answer."""
    monkeypatch.setattr(client, "SILENT_S", LIMIT_S)
    path = tmp_path / "control.sock"

    with terminal() as screen:
        with daemon(path, lambda: None):
            assert ask(str(path), "bypass", timeout_s=2 * LIMIT_S) == "done"
        os.set_blocking(screen, False)
        with pytest.raises(BlockingIOError):
            os.read(screen, 1)


def test_a_script_hears_only_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where standard error is no terminal, the error at the end says how long the command has waited."""
    monkeypatch.setattr(client, "SILENT_S", 0.01)
    path, stderr = tmp_path / "control.sock", io.StringIO()

    with socket.socket(socket.AF_UNIX) as listener, redirect_stderr(stderr):
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(NoDaemon, match=r"did not answer within 0\.1 s"):
            ask(str(path), "bypass", timeout_s=0.1)
    assert stderr.getvalue() == ""


def bypass(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and output of `criproxy bypass status`."""
    result = criproxy("bypass", "status", *arguments)
    return result.exit_code, result.output


@pytest.mark.parametrize("prefix", ["unix://", "unix:"])
def test_a_control_socket_may_be_named_as_other_sockets(tmp_path: Path, prefix: str) -> None:
    """As ``unix:///PATH``, too."""
    path = tmp_path / "control.sock"
    answer = b'{"result": {"bypass": false}}\n'

    with daemon(path, lambda: None, answer):
        assert bypass("--control-socket", f"{prefix}{path}") == (0, "bypass is off\n")


def test_an_address_that_names_no_socket() -> None:
    """Wrong use, with what would be right."""
    status, output = bypass("--control-socket", "unix://control.sock")

    assert (status, "--control-socket: 'unix://control.sock' is not a Unix socket; use unix:///PATH" in output) == (
        2,
        True,
    ), output


def test_what_is_no_socket_is_said_to_be_none(tmp_path: Path) -> None:
    """No daemon could listen there, and starting it helps nobody."""
    file = tmp_path / "file"
    file.touch()

    for path, what in ((tmp_path, "a directory"), (file, "a file")):
        with pytest.raises(NoDaemon) as caught:
            ask(str(path), "bypass", timeout_s=LIMIT_S)
        assert str(caught.value) == f"{path} is {what}, not a socket; name the daemon's socket with --control-socket"


HTTP2 = (
    pytest.param(b"\0\0\x08\x07\0\0\0\0\0" + b"\0" * 8, id="goaway"),
    pytest.param(b"\0\0\x06\x04\0\0\0\0\0" + b"\0" * 6, id="settings"),
)
"""What servers of CRI answer to a line of JSON: criproxy, and others."""


@pytest.mark.parametrize("frame", HTTP2)
def test_a_socket_for_cri_is_named(tmp_path: Path, frame: bytes) -> None:
    """It lies beside the control socket."""
    path = tmp_path / "criproxy.sock"

    with daemon(path, lambda: None, frame), pytest.raises(NoDaemon) as caught:
        ask(str(path), "bypass", timeout_s=LIMIT_S)

    assert str(caught.value) == (
        f"{path} is a CRI socket, such as criproxy has for the kubelet; name the daemon's control socket with "
        f"--control-socket, such as {DEFAULT_CONTROL_SOCKET}"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"", "not JSON", id="ends"),
        pytest.param(b"hello\n", "not JSON", id="text"),
        pytest.param(b"[" * 100_000 + b"\n", "not JSON", id="deep"),
        pytest.param(b'{"QMP": {}}\n', "neither a result nor an error", id="another-protocol"),
        pytest.param(b'{"error": {"code": 1}}\n', "neither a result nor an error", id="json-rpc"),
        pytest.param(b"5\n", "neither a result nor an error", id="number"),
    ],
)
def test_another_program_is_no_daemon(tmp_path: Path, answer: bytes, reason: str) -> None:
    """Whatever it answers: queries then show the state on disk."""
    path = tmp_path / "control.sock"

    with daemon(path, lambda: None, answer), pytest.raises(NoDaemon, match=f"its answer .*{reason}"):
        ask(str(path), "bypass", timeout_s=LIMIT_S)


def test_whether_a_daemon_runs_may_be_unknown(tmp_path: Path) -> None:
    """Who may not look into the state directory does not hear that no process uses it."""
    state = tmp_path / "state"
    closed(state)
    places = ("--state-dir", str(state), "--control-socket", str(tmp_path / "none.sock"))

    result = subprocess.run(
        [*WITHOUT_PRIVILEGES, sys.executable, "-m", "criproxy", "bypass", "on", *places],
        capture_output=True,
        text=True,
        check=False,
    )

    unknown = f"it is unknown whether a process uses the state directory {state} (Permission denied): this needs root"
    assert result.returncode == 1
    assert unknown in result.stderr
    assert "no process uses" not in result.stderr


def test_a_daemon_that_runs_is_found(tmp_path: Path) -> None:
    """It has the lock of the state directory; without the directory, or without its lock, nobody uses it."""
    places = ("--state-dir", tmp_path / "state", "--control-socket", tmp_path / "none.sock")
    nobody = f"no process uses the state directory {tmp_path}/state"

    status, output = bypass(*places)
    assert (status, nobody in output) == (1, True), output
    (tmp_path / "state").mkdir()
    assert nobody in bypass(*places)[1]
    with (tmp_path / "state" / LOCK_NAME).open("w") as lock:
        assert nobody in bypass(*places)[1]
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = f"process {os.getpid()} uses the state directory {tmp_path}/state"
        assert found in bypass(*places)[1]
