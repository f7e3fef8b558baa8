"""The processes of a run: the runtime and criproxy. Each ends with its block."""

import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import grpc

from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset
from lab.bench.ways import Way, cpu_ns_of, listener_pid
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import PrivateContainerd, available

CONTAINERD, EMBEDDED = "containerd", "embedded"

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0


class StartError(Exception):
    """A process that ended, or was not ready in time; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that answers, without containers."""

    name: str
    socket: Path
    pid: int
    cgroups: PodCgroups | None = None
    """Makes the parent cgroups of pods, where the runtime has real ones."""


def choose(asked: str) -> list[str]:
    """The runtimes for ``auto`` (all that can run here), ``containerd``, ``embedded`` or a socket's path.

    Raises:
        ValueError: if it is none of them, or containerd cannot run here.
    """
    problem = available()
    if asked == "auto":
        return [EMBEDDED] if problem else [CONTAINERD, EMBEDDED]
    if asked == CONTAINERD and problem:
        raise ValueError(f"no private containerd here: {problem}; --runtime embedded needs nothing")
    if asked in (CONTAINERD, EMBEDDED) or Path(asked).is_socket():
        return [asked]
    raise ValueError(f"{asked!r} is neither auto, containerd, embedded nor the path of a runtime's socket")


@contextmanager
def started(name: str, directory: Path) -> Iterator[Runtime]:
    """Run the runtime *name* while the block lasts; sockets and logs lie in *directory*."""
    if name == CONTAINERD:
        with PrivateContainerd() as daemon:
            yield Runtime(name, daemon.socket, daemon.pid, daemon.cgroups)
    elif name == EMBEDDED:
        # A machine like this one, which criproxy reads: so it asks for no CPU that is missing.
        machine = discover()
        sets = ("--cpus", format_cpuset(machine.cpus), "--mems", format_cpuset(machine.mems) or "0")
        with embedded(directory, *sets) as runtime:
            yield runtime
    else:
        yield Runtime(name, Path(name), listener_pid(Path(name)))


@contextmanager
def embedded(directory: Path, *options: str) -> Iterator[Runtime]:
    """Run the embedded runtime with these *options* while the block lasts; socket and log lie in *directory*."""
    socket = directory / "runtime.sock"
    command = [sys.executable, "-m", "lab.emulator", "--socket", str(socket), *options]
    with running(command, directory / "runtime.log") as process:
        yield Runtime(EMBEDDED, socket, process.pid)


@dataclass(frozen=True, slots=True)
class Serve:
    """One ``criproxy serve``, which can be started again and again."""

    runtime: Path
    directory: Path
    policy: Path
    host_root: Path = Path("/")

    @property
    def listen(self) -> Path:
        """Where it listens."""
        return self.directory / "criproxy.sock"

    @property
    def log(self) -> Path:
        """Where it writes."""
        return self.directory / "serve.log"

    @contextmanager
    def running(self) -> Iterator[int]:
        """Run it until the block ends; its process id. StartError if it does not become ready."""
        with running(self.command(), self.log) as process:
            yield process.pid

    @contextmanager
    def controls(self) -> Iterator[int]:
        """Run `criproxy controls` for it until the block ends; its process id. StartError as `running`."""
        folder = self.directory / "controls"
        folder.mkdir()
        paths = {"--socket": folder / "controls.sock", "--state-dir": folder / "state", "--host-root": self.host_root}
        options = (str(word) for pair in paths.items() for word in pair)
        command = [sys.executable, "-m", "criproxy", "controls", "--log-format", "json", *options]
        with running(command, self.directory / "controls.log") as process:
            yield process.pid

    def command(self) -> list[str]:
        """Metrics are on, as on a node."""
        paths = {
            "--config": self.policy,
            "--listen": self.listen,
            "--runtime-endpoint": self.runtime,
            "--state-dir": self.directory / "state",
            "--control-socket": self.directory / "control.sock",
            "--http": f"unix://{self.directory / 'http.sock'}",
            "--host-root": self.host_root,
        }
        options = (str(word) for pair in paths.items() for word in pair)
        return [sys.executable, "-m", "criproxy", "serve", "--log-format", "json", *options]


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command*, whose output goes to *log*, until the block ends; it is ready, as for systemd, when that begins.

    Raises:
        StartError: if it does not become ready.
    """
    with _notified() as (heard, environ), log.open("ab") as output:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=output, stderr=output)
        _await_ready(process, heard, log)
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


class Start(NamedTuple):
    """How long a start took, in seconds from exec."""

    answer_s: float
    """Until a client that was waiting at the socket had its answer."""
    ready_s: float
    """Until systemd was told, and calls that have to be decided were."""
    cpu_s: float
    """CPU time until both."""


def measured_start(serve: Serve, method: str, request: bytes) -> tuple[Start, bytes]:
    """Start criproxy on a socket that it is handed over, as systemd does, with a call that waits there; stop it.

    Returns:
        What it took, and the reply to the call.
    """
    with (
        _listening(serve.listen) as listener,
        _notified() as (heard, environ),
        Way(method, serve.listen, os.getpid()) as way,
    ):
        call = way.begin(method, request, wait_for_ready=True)
        begun_ns = time.perf_counter_ns()
        with serve.log.open("ab") as errors:
            process = subprocess.Popen(
                ["sh", "-c", _HAND_OVER.format(listener.fileno()), "sh", *serve.command()],
                env={**os.environ, **environ},
                stderr=errors,
                pass_fds=[listener.fileno()],
            )
        answered_ns = _moment_of(call)
        try:
            _await_ready(process, heard, serve.log)
            ready_ns = time.perf_counter_ns()
            cpu_s = cpu_ns_of(process.pid) / 1e9
            return Start((answered_ns() - begun_ns) / 1e9, (ready_ns - begun_ns) / 1e9, cpu_s), call.result()
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


def _await_ready(process: subprocess.Popen[bytes], heard: socket.socket, log: Path) -> None:
    """Wait until the process has told systemd that it is ready; StartError if it ends, or takes too long."""
    end = time.monotonic() + _START_TIMEOUT_S
    heard.settimeout(0.1)
    while process.poll() is None and time.monotonic() < end:
        with suppress(TimeoutError):
            if b"READY=1" in heard.recv(4096):
                return
    stop(process)
    tail = log.read_text(errors="replace")[-2000:]
    raise StartError(f"{' '.join(process.args)} did not become ready\n{tail}")  # type: ignore[arg-type]
