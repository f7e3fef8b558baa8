"""`criproxy serve` as a process of its own, for tests that look at it from outside."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_S = 90.0
"""What a step of a test may take before it counts as stuck."""

HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Does what systemd does: the socket as descriptor 3, and our own process id in the environment."""


class Serve:
    """One daemon with sockets, state and log below one directory; leaving the context kills it."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        passed: socket.socket | None = None,
        stderr: int | None = None,
        limit_s: float = LIMIT_S,
        program: tuple[str, ...] = ("-m", "criproxy"),
        **environ: str,
    ) -> None:
        """Prepare ``serve`` with *arguments* behind those for its places.

        Args:
            directory: for everything that it writes.
            arguments: further options.
            passed: a listening socket that is handed over as systemd does.
            stderr: descriptor for standard error, the file `log` if not given.
            limit_s: what a step may take, where the machine is slower than that of a test.
            program: Python's arguments for the program whose command ``serve`` is run.
            environ: further environment variables.
        """
        self.directory = directory
        self.socket = directory / "run" / "criproxy.sock"
        self.control = directory / "run" / "control.sock"
        self.policy = directory / "policy.yaml"
        self.runtime = directory / "runtime.sock"
        self.log = directory / "serve.log"
        self._passed = passed
        self._stderr = stderr
        self._limit_s = limit_s
        self._environ = environ
        self._arguments = [
            *(*program, "serve", "--listen", f"unix://{self.socket}"),
            *("--runtime-endpoint", f"unix://{self.runtime}", "--control-socket", str(self.control)),
            *("--state-dir", str(directory / "state"), *arguments),
        ]
        self._notify: socket.socket | None = None
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start it and wait until it says that it is ready."""
        path = self.directory / "notify.sock"
        path.unlink(missing_ok=True)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(path))
        self._notify.setblocking(False)
        await self.spawn()
        try:
            ready = await self.message("READY=1")
        except TimeoutError:
            raise AssertionError(f"not ready; it said: {self.log.read_text()}") from None
        assert any(
            line.startswith(("STATUS=serving on ", "STATUS=POLICY FILE NOT USED", "STATUS=RELEASED", "STATUS=TRYING"))
            for line in ready
        )
        return self

    async def spawn(self) -> None:
        """Start the process, ready or not."""
        command, fds = list(self._arguments), []
        if self._passed is not None:
            fds = [self._passed.fileno()]
            command = ["-c", HAND_OVER, str(fds[0]), *command]
        environ = {**os.environ, "NOTIFY_SOCKET": str(self.directory / "notify.sock"), **self._environ}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdout=log, stderr=self._stderr or log, env=environ, pass_fds=fds
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what is left of it."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self._notify is not None:
            self._notify.close()

    async def message(self, wanted: str) -> list[str]:
        """The lines of the next message to systemd that has the line *wanted*."""
        assert self._notify is not None
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limit_s):
            while True:
                lines = (await loop.sock_recv(self._notify, 65_536)).decode().splitlines()
                if wanted in lines:
                    return lines

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

    def forget(self) -> None:
        """Drop the messages that have come, such as those of a process that is dead."""
        assert self._notify is not None
        with suppress(BlockingIOError):
            while True:
                self._notify.recv(65_536)

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
