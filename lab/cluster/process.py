"""Programs of the cluster: each with its log, and an error as soon as one ends that should not."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

_LOG_END = 1500
_END_S = 20.0
Value = TypeVar("Value")


class ClusterError(RuntimeError):
    """The cluster cannot go on; the text says which part, and why."""


class Program:
    """One program, which can be ended and started again.

    Args:
        command: its words.
        log: the file for what it says, of all its lives.
        environ: variables beside our own.
    """

    def __init__(self, command: list[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.log = log
        self._environ = {**os.environ, **(environ or {})}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id, 0 while it does not run."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    async def start(self) -> None:
        """Start it; ClusterError if it cannot be started."""
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ
                )
            except OSError as error:
                raise ClusterError(f"{self.command[0]} cannot be started: {error}") from None

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, by SIGKILL after a while; nothing if it has ended."""
        if (process := self._process) is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and start it again."""
        await self.stop(how)
        await self.start()

    async def until(self, condition: Callable[[], Awaitable[Value]], what: str, timeout_s: float = 60.0) -> Value:
        """What *condition* returns as soon as that is true.

        Raises:
            ClusterError: the program ends before, or it takes too long; with the end of its log.
        """

        async def goes_on() -> Value:
            if not self.pid:
                raise ClusterError("it has ended")
            return await condition()

        try:
            return await until(goes_on, what, timeout_s)
        except ClusterError as error:
            end = self.log.read_text(errors="replace")[-_LOG_END:] if self.log.exists() else ""
            raise ClusterError(f"{self.log.stem}: {error}; its log ends so:\n{end}") from None


async def until(condition: Callable[[], Awaitable[Value]], what: str, timeout_s: float = 60.0) -> Value:
    """What *condition* returns as soon as that is true; ClusterError, which names *what*, if it takes too long."""
    try:
        async with asyncio.timeout(timeout_s):
            while not (value := await condition()):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.2)
            return value
    except TimeoutError:
        raise ClusterError(f"{what}: not within {timeout_s:.0f} s") from None


async def output(*command: str, stdin: str = "", timeout_s: float = 60.0) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command; ClusterError if it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), timeout_s)
    except TimeoutError:
        raise ClusterError(f"{' '.join(command)[:200]} has not ended within {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
