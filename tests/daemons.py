"""`criproxy serve` as a process of its own, for tests that look at it from outside."""

import asyncio
import inspect
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner

from criproxy.cli import main
from criproxy.cli.client import ask
from criproxy.cri.runtime import RuntimeClient
from lab.kubelet.kubelet import MiniKubelet

LIMIT_S = 90.0
"""What a step of a test may take before it counts as stuck."""

HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Does what systemd does: the socket as descriptor 3, and our own process id in the environment."""


def node_files(root: Path, cpus: str = "0-3") -> None:
    """Write the files of a machine with one NUMA node, below *root*."""
    texts = {"cpu/online": cpus, "node/online": "0", "node/node0/cpulist": cpus}
    for name, text in {**texts, "node/node0/meminfo": "Node 0 MemTotal: 16777216 kB"}.items():
        path = root / "sys/devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


async def until(condition: Callable[[], Any], pause_s: float = 0.02) -> Any:  # noqa: ANN401 (what it returns)
    """Wait for what nothing tells of: return what *condition* returns, or awaits, as soon as that is true."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(pause_s)


@asynccontextmanager
async def client_at(path: Path) -> AsyncIterator[RuntimeClient]:
    """A client of who listens on *path*."""
    client = RuntimeClient(f"unix://{path}", timeout_s=LIMIT_S)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def kubelet_at(path: Path) -> AsyncIterator[MiniKubelet]:
    """A small kubelet that talks to who listens on *path*."""
    async with client_at(path) as client:
        yield MiniKubelet(client)


class Process:
    """A program of ours that tells systemd how it is, with its log in *directory*; leaving the context kills it."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *arguments: str,
        passed: socket.socket | None = None,
        stderr: int | None = None,
        limit_s: float = LIMIT_S,
        **environ: str,
    ) -> None:
        """Prepare Python with *arguments*; for the others, see `Serve`."""
        self.directory = directory
        self.log = directory / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None
        self._arguments = list(arguments)
        self._passed = passed
        self._stderr = stderr
        self._limit_s = limit_s
        self._path = directory / f"{name}.notify"
        self._environ = {"NOTIFY_SOCKET": str(self._path), **environ}
        self._notify: socket.socket | None = None
        self.said: list[str] = []
        """Its first message, once it is ready."""

    async def __aenter__(self) -> Self:
        """Start it and wait until it says that it is ready."""
        self._path.unlink(missing_ok=True)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(self._path))
        self._notify.setblocking(False)
        await self.spawn()
        try:
            self.said = await self.message("READY=1")
        except TimeoutError:
            raise AssertionError(f"not ready; it said: {self.log.read_text()}") from None
        return self

    async def spawn(self) -> None:
        """Start the process, ready or not."""
        command, fds = list(self._arguments), []
        if self._passed is not None:
            fds = [self._passed.fileno()]
            command = ["-c", HAND_OVER, str(fds[0]), *command]
        environ = {**os.environ, **self._environ}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdout=log, stderr=self._stderr or log, env=environ, pass_fds=fds
            )

    async def __aexit__(self, *_: object) -> None:
        """Kill what is left of it."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self._notify is not None:
            self._notify.close()

    async def message(self, wanted: str) -> list[str]:
        """The lines of the next message to systemd that has a line which begins with *wanted*."""
        assert self._notify is not None
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limit_s):
            while True:
                lines = (await loop.sock_recv(self._notify, 65_536)).decode().splitlines()
                if any(line.startswith(wanted) for line in lines):
                    return lines

    def forget(self) -> None:
        """Drop the messages that have come, such as those of a process that is dead."""
        assert self._notify is not None
        with suppress(BlockingIOError):
            while True:
                self._notify.recv(65_536)

    async def logged(self, text: str) -> None:
        """Wait until its log has that *text*."""
        await until(lambda: self.log.exists() and text in self.log.read_text())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    async def exit_status(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        async with asyncio.timeout(self._limit_s):
            return await self.process.wait()

    async def stop(self) -> int:
        """End it as systemd does; return the exit status."""
        self.signal(signal.SIGTERM)
        return await self.exit_status()


class Serve(Process):
    """One daemon with sockets, state and log below one directory."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        policy: str = "",
        cpus: str = "",
        program: tuple[str, ...] = ("-m", "criproxy"),
        **options: Any,  # noqa: ANN401 (of `Process`)
    ) -> None:
        """Prepare ``serve`` with *arguments* behind those for its places.

        Args:
            directory: for everything that it writes.
            arguments: further options.
            policy: text of its policy file, which is written; without it, no file is named.
            cpus: those of its machine, whose files are written by `node_files`; without them, it is this machine.
            program: Python's arguments for the program whose command ``serve`` is run.
            options: passed, a listening socket that is handed over as systemd does; stderr, a descriptor for standard
                error, the file `log` if not given; limit_s, what a step may take, where the machine is slower than that
                of a test; and further environment variables.
        """
        self.socket = directory / "run" / "criproxy.sock"
        self.control = directory / "run" / "control.sock"
        self.policy = directory / "policy.yaml"
        self.runtime = directory / "runtime.sock"
        super().__init__(
            directory,
            "serve",
            *(*program, "serve", "--listen", f"unix://{self.socket}"),
            *("--runtime-endpoint", f"unix://{self.runtime}", "--control-socket", str(self.control)),
            *("--state-dir", str(directory / "state"), *arguments),
            **options,
        )
        if policy:
            self.policy.write_text(policy)
            self._arguments += ("--config", str(self.policy))
        if cpus:
            node_files(directory, cpus)
            self._arguments += ("--host-root", str(directory))

    async def __aenter__(self) -> Self:
        """Start it and wait until it says that it is ready, and how it serves."""
        await super().__aenter__()
        states = ("STATUS=serving on ", "STATUS=POLICY FILE NOT USED", "STATUS=RELEASED", "STATUS=TRYING")
        assert any(line.startswith(states) for line in self.said)
        return self

    async def reload(self, policy: str) -> None:
        """Replace the policy file, which is `policy` then, and wait until the new one is in force.

        It must differ from the one before: what says the same is no reason for a reload.
        """
        new = self.policy.with_name("policy.new")
        new.write_text(policy)
        new.rename(self.policy)  # nobody reads half of it
        await self.message("RELOADING=1")
        said = await self.message("READY=1")
        assert not any("POLICY FILE NOT USED" in line for line in said), said

    async def ask(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """The answer on its control socket."""
        return await asyncio.to_thread(ask, str(self.control), command, arguments, self._limit_s)

    async def command(self, *words: str) -> tuple[int, str]:
        """Exit status and output of a command that asks it."""
        result = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--control-socket", str(self.control)])
        return result.exit_code, result.output

    async def json(self, *words: str) -> tuple[int, Any]:
        """Exit status and JSON of a command that asks it."""
        status, output = await self.command(*words, "--format", "json")
        return status, json.loads(output)

    async def notices(self) -> dict[str, str]:
        """What ``status --check`` says: kind → text."""
        return {each["kind"]: each["text"] for each in (await self.ask("status", check=True))["notices"]}

    def client(self) -> AbstractAsyncContextManager[RuntimeClient]:
        """A client of it."""
        return client_at(self.socket)

    def kubelet(self) -> AbstractAsyncContextManager[MiniKubelet]:
        """A small kubelet that talks to it."""
        return kubelet_at(self.socket)
