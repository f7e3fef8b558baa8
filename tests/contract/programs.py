"""How the programs are started, and what they answer: all that this suite knows of criproxy beside CRI's messages."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CRIPROXY = ("-m", "criproxy")
PLUGIN = ("-m", "criproxy.cli.kubectl.plugin")
EMULATOR = ("-m", "lab.emulator")
VECTORS = ("-m", "tests.vectors")
"""Python's arguments for each program."""
LIMIT_S = 90.0
"""How long anything may take on a slow machine."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 (JSON)
        """Its output as JSON; of several lines, a list of the values."""
        try:
            return json.loads(self.out)
        except json.JSONDecodeError:
            return [json.loads(line) for line in self.out.splitlines()]

    @property
    def text(self) -> str:
        """All that it printed, as one line."""
        return " ".join(f"{self.out} {self.err}".split())


def command(*arguments: str | Path, program: tuple[str, ...] = CRIPROXY, **environ: str) -> Answer:
    """Run a command to its end."""
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@contextmanager
def service(log: Path, *arguments: str | Path, ready: str = "READY=1") -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of which systemd hears *ready*, or its log *log* has it, until the context ends."""
    notify = log.with_suffix(".notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, log.open("wb") as output:
        systemd.bind(str(notify))
        systemd.settimeout(0.05)
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "NOTIFY_SOCKET": str(notify)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            wait_until(lambda: _is_ready(process, systemd, log, ready), lambda: f"not ready: {log.read_text()}")
            yield process
        finally:
            stop(process)
            notify.unlink()


def _is_ready(process: subprocess.Popen[bytes], systemd: socket.socket, log: Path, ready: str) -> bool:
    assert process.poll() is None, f"it has ended: {log.read_text()}"
    try:
        told = systemd.recv(65_536).decode()
    except TimeoutError:
        told = ""
    return ready in f"{told}{log.read_text()}"


def stop(process: subprocess.Popen[bytes]) -> int:
    """End a program as systemd does; returns its exit status."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def wait_until(condition: Callable[[], bool], otherwise: Callable[[], str], pause_s: float = 0.02) -> None:
    """Return when *condition* is true; fail with the text *otherwise* if that takes too long."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, otherwise()
        time.sleep(pause_s)


def fetch(path: Path, page: str) -> str:
    """Return the body that an HTTP server at a Unix socket sends for *page*."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        client.connect(str(path))
        client.sendall(f"GET {page} HTTP/1.0\r\nHost: node\r\n\r\n".encode())
        received = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], head.decode()
    return body.decode()


class Node:
    """A machine, the emulated runtime on it, and a daemon in front of the runtime; all files are below *root*.

    Args:
        root: a folder with a short path.
        policy: the text of the policy file.
        cpus: those of each NUMA node.
    """

    def __init__(self, root: Path, policy: str, cpus: tuple[str, ...] = ("0-3",)) -> None:
        self.root = root
        self.policy = root / "policy.yaml"
        self.runtime = root / "runtime.sock"
        self.socket = root / "criproxy.sock"
        self.control = root / "control.sock"
        self.state = root / "state"
        self.http = root / "http.sock"
        self.log = root / "serve.log"
        self.cpus = cpus
        self.policy.write_text(policy)
        for number, of_node in enumerate(cpus):
            self.write(f"sys/devices/system/node/node{number}/cpulist", of_node)
            self.write(f"sys/devices/system/node/node{number}/meminfo", f"Node {number} MemTotal: 16777216 kB")
        self.write("sys/devices/system/cpu/online", ",".join(cpus))
        self.write("sys/devices/system/node/online", f"0-{len(cpus) - 1}")

    def write(self, place: str, text: str = "") -> None:
        """Write a file of the machine."""
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    @contextmanager
    def runtime_serving(self, *options: str) -> Iterator[None]:
        """Run the emulated runtime."""
        machine = ("--cpus", ",".join(self.cpus), "--mems", f"0-{len(self.cpus) - 1}", "--host-root", self.root)
        with service(
            self.root / "runtime.log", *EMULATOR, "--socket", self.runtime, *machine, *options, ready="listening"
        ):
            yield

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the daemon."""
        sockets = ("--listen", f"unix://{self.socket}", "--runtime-endpoint", f"unix://{self.runtime}")
        places = ("--control-socket", self.control, "--state-dir", self.state, "--host-root", self.root)
        more = ("--config", self.policy, "--http", f"unix://{self.http}")
        with service(self.log, *CRIPROXY, "serve", *sockets, *places, *more) as process:
            yield process

    def ask(self, name: str, *arguments: str | Path) -> Answer:
        """Run the command *name* with the places that it has options for."""
        places = {"--control-socket": self.control, "--state-dir": self.state, "--host-root": self.root}
        known = [each for option, path in places.items() if option in options_of(name) for each in (option, path)]
        return command(name, *known, *arguments)

    def query(self, name: str) -> Any:  # noqa: ANN401 (JSON)
        """What the daemon answers to a command on its control socket: much cheaper than a process."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LIMIT_S)
            client.connect(str(self.control))
            client.sendall(json.dumps({"command": name, "arguments": {}}).encode() + b"\n")
            with client.makefile("rb") as answers:
                return json.loads(answers.readline())["result"]

    def containers(self) -> dict[str, dict[str, Any]]:
        """Pod → its newest container, as ``status`` shows it."""
        return {each["pod"]: each for each in self.query("status")["containers"]}


_HELP: dict[tuple[str, ...], str] = {}
_OPTION = re.compile(r"^ {2}(-.*?)(?: {2,}|$)", re.MULTILINE)


def help_of(name: str, program: tuple[str, ...] = CRIPROXY) -> str:
    """Return what ``--help`` of a command prints, wide enough for one option a line."""
    if (*program, name) not in _HELP:
        _HELP[*program, name] = command(*filter(None, [name]), "--help", program=program, COLUMNS="110").out
    return _HELP[*program, name]


def options_of(name: str, program: tuple[str, ...] = CRIPROXY) -> set[str]:
    """Return the names of the options of a command."""
    lines = _OPTION.findall(help_of(name, program))
    return {word for line in lines for word in re.findall(r"(?<!\S)--?[a-z][a-z-]*", line)}


def commands() -> list[str]:
    """Return the names of all commands."""
    return re.findall(r"^ {2}([a-z][a-z-]+) ", help_of("").partition("Commands:")[2], re.MULTILINE)
