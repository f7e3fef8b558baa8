"""Programs that may hang, also where they cannot be killed: none is waited for, and no second one started meanwhile."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

LONGEST_LINE_BYTES = 65_536
KILL_S = 1.0
"""After so long a killed program that is still there is in the hands of a driver."""
_CHUNK_BYTES = 65_536
_SERVICE_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What systemd says to us, and not to programs that we start."""


class Child:
    """One program at a time, in a process group of its own."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def status(self) -> int | None:
        """The exit status of the last one; None: there was none, or it has not ended."""
        return None if self._process is None else self._process.returncode

    @property
    def _is_over(self) -> bool:
        """Whether nothing of it is left, so that its number may be that of another program by now."""
        process = self._process
        return process is None or (
            process.returncode is not None and process.stdout is not None and process.stdout.at_eof()
        )

    async def start(self, command: Sequence[str], longest_bytes: int = LONGEST_LINE_BYTES) -> asyncio.StreamReader:
        """Start a program; returns its standard output.

        Args:
            command: the program and its arguments.
            longest_bytes: of a line; one that is longer is an error for who reads lines.

        Raises:
            OSError: it cannot be started; also where a former one is still there.
        """
        if self._process is not None and self._process.returncode is None:
            raise OSError(0, "a former one still hangs")
        environ = {name: value for name, value in os.environ.items() if name not in _SERVICE_VARIABLES}
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=environ,
            limit=longest_bytes,
        )
        assert process.stdout is not None
        return process.stdout

    async def ended(self) -> int:
        """Its exit status, when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """End it, and what it has started; after a moment in any case."""
        if self._process is None or self._is_over:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await self._process.wait()
                while self._process.stdout is not None and await self._process.stdout.read(_CHUNK_BYTES):
                    pass  # until its end: then the event loop lets go of it
