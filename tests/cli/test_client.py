"""Asking the daemon on its control socket: what somebody at a terminal hears while it does not answer."""

import io
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from threading import Thread

import pytest

from criproxy.cli import client
from criproxy.cli.client import NoDaemon, ask

LIMIT_S = 60.0
ANSWER = b'{"result": "done"}\n'


@contextmanager
def daemon(path: Path, until: Callable[[], object]) -> Iterator[None]:
    """A daemon that answers one request when *until* has returned."""

    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.makefile("rb").readline()
            until()
            connection.sendall(ANSWER)

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
