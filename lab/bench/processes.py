"""The processes of a run: criproxy, the annotating proxy, the embedded runtime. Each ends with its block."""

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import grpc

from lab.bench.ways import Way, cpu_ns_of

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0


class StartError(Exception):
    """A process that ended, or was not ready in time; the text has the end of its log."""


def embedded_command(path: Path, cpus: str, mems: str) -> list[str]:
    """The embedded runtime, empty, on a machine with *cpus* and *mems* (kernel list format)."""
    return [sys.executable, "-m", "lab.emulator", "--socket", str(path), "--cpus", cpus, "--mems", mems]


def annotate_command(runtime: Path, listen: Path) -> list[str]:
    """The proxy whose one handler adds an annotation."""
    return [sys.executable, "-m", "lab.bench.annotate", str(runtime), str(listen)]


@dataclass(frozen=True, slots=True)
class Serve:
    """One ``criproxy serve``, which can be started again and again."""

    runtime: Path
    directory: Path
    policy: Path

    @property
    def listen(self) -> Path:
        """Where it listens."""
        return self.directory / "criproxy.sock"

    def command(self) -> list[str]:
        """Metrics are on, as on a node."""
        paths = {
            "--config": self.policy,
            "--listen": self.listen,
            "--runtime-endpoint": self.runtime,
            "--state-dir": self.directory / "state",
            "--control-socket": self.directory / "control.sock",
            "--http": f"unix://{self.directory / 'http.sock'}",
        }
        options = (str(word) for pair in paths.items() for word in pair)
        return [sys.executable, "-m", "criproxy", "serve", "--log-format", "json", *options]


@contextmanager
def running(command: Sequence[str], log: Path, *, notifies: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* until the block ends; it is ready when the block begins.

    Args:
        command: the program and its arguments.
        log: where its standard error goes.
        notifies: it says READY=1 as to systemd; otherwise its first line on standard output says so.

    Raises:
        StartError: if it does not become ready.
    """
    process = _start_notifying(command, log) if notifies else _start_speaking(command, log)
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process with SIGTERM, or by force if that does not help."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


class Start(NamedTuple):
    """How long a start took, in seconds from exec."""

    answer_s: float
    """Until a client that was waiting at the socket had its answer to Version."""
    ready_s: float
    """Until systemd was told, and calls that have to be decided were."""
    cpu_s: float
    """CPU time until both."""


def measured_start(serve: Serve, log: Path, name: str, version: bytes) -> Start:
    """Start criproxy on a socket that it is handed over, as systemd does, call Version, stop it."""
    with (
        _listening(serve.listen) as listener,
        _notified() as (heard, environ),
        Way(name, serve.listen, os.getpid()) as way,
    ):
        call = way.begin("Version", version, wait_for_ready=True)
        begun_ns = time.perf_counter_ns()
        with log.open("ab") as errors:
            process = subprocess.Popen(
                ["sh", "-c", _HAND_OVER.format(listener.fileno()), "sh", *serve.command()],
                env={**os.environ, **environ},
                stderr=errors,
                pass_fds=[listener.fileno()],
            )
        answered_ns = _moment_of(call)
        try:
            _await(process, heard.fileno(), lambda: b"READY=1" in heard.recv(4096), log)
            ready_ns = time.perf_counter_ns()
            cpu_s = cpu_ns_of(process.pid) / 1e9
            return Start((answered_ns() - begun_ns) / 1e9, (ready_ns - begun_ns) / 1e9, cpu_s)
        finally:
            stop(process)


def _moment_of(call: "grpc.Future[bytes]") -> Callable[[], int]:
    """When *call* was answered, on the clock of `time.perf_counter_ns`; waits for that."""
    moments = queue.SimpleQueue[int]()
    call.add_done_callback(lambda _: moments.put(time.perf_counter_ns()))

    def moment_ns() -> int:
        call.result()  # raises what went wrong
        return moments.get()

    return moment_ns


_HAND_OVER = 'LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec "$@" 3<&{}'
"""What systemd does to a service with a socket, in a shell that becomes the service."""


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(16)
        yield listener
    path.unlink(missing_ok=True)


@contextmanager
def _notified() -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """A socket that hears what is told to systemd, and the environment that names it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(b"")  # the kernel finds a free abstract address
        yield heard, {"NOTIFY_SOCKET": "@" + heard.getsockname()[1:].decode()}


def _start_notifying(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with _notified() as (heard, environ), log.open("ab") as errors:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stderr=errors)
        _await(process, heard.fileno(), lambda: b"READY=1" in heard.recv(4096), log)
    return process


def _start_speaking(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    out = process.stdout
    assert out is not None
    _await(process, out.fileno(), lambda: bool(out.readline()), log)
    return process


def _await(process: subprocess.Popen[bytes], fd: int, is_ready: Callable[[], bool], log: Path) -> None:
    """Wait until *fd* has said what `is_ready` wants, or the process has ended."""
    end = time.monotonic() + _START_TIMEOUT_S
    pidfd = os.pidfd_open(process.pid)
    try:
        while (left_s := end - time.monotonic()) > 0:
            readable, _, _ = select.select([fd, pidfd], [], [], left_s)
            if fd in readable and is_ready():
                return
            if pidfd in readable:
                break
    finally:
        os.close(pidfd)
    stop(process)
    tail = log.read_text(errors="replace")[-2000:]
    raise StartError(f"{' '.join(process.args)} did not become ready\n{tail}")  # type: ignore[arg-type]
