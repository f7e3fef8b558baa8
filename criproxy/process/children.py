"""Child processes that may hang, even when killed: criproxy does not wait for them, and starts no second one then."""

import asyncio
import ctypes
import os
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.process.tether import tethered

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Entry:
    """One process."""

    parent: int
    session: int
    is_over: bool = False
    """Whether it is a zombie."""


def adopt(*, orphans: bool = True) -> None:
    """Make this process the subreaper of its descendants, or end that."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def processes() -> dict[int, Entry]:
    """Return all processes by PID; reading /proc takes milliseconds."""
    return {int(name): entry for name in os.listdir(_PROC) if name.isdigit() if (entry := _entry(name))}  # noqa: PTH208


def started_by(pid: int, others: Collection[int], found: Mapping[int, Entry], own: int) -> Iterator[int]:
    """Yield the descendants of a program, including those of programs that ended before.

    Args:
        pid: the PID of the program, which may have ended.
        others: running programs that this process started in the same way, each in a separate session.
        found: all processes.
        own: the PID of this process; its other children are in its own session.
    """
    for each in found.keys() - {pid}:
        first = _first(each, found, own)
        if first == pid or (first is not None and _is_adopted(first, others, found, own)):
            yield each


def kill(pids: Collection[int], found: Mapping[int, Entry], own: int) -> None:
    """Kill processes, and reap those that were adopted."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            if not found[pid].is_over:
                os.kill(pid, signal.SIGKILL)
        if found[pid].parent == own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _first(pid: int, found: Mapping[int, Entry], own: int) -> int | None:
    """Return the ancestor of a process, or itself, that is a child of this process; None for other processes."""
    for _ in found:  # bounded: parents may change while /proc is read
        entry = found.get(pid)
        if entry is None or entry.parent == own:
            return pid if entry else None
        pid = entry.parent
    return None


def _is_adopted(pid: int, others: Collection[int], found: Mapping[int, Entry], own: int) -> bool:
    session = found[pid].session
    return pid not in others and session not in (*others, found[own].session)


def _entry(name: str) -> Entry | None:
    try:
        text = (_PROC / name / "stat").read_text(errors="replace")
    except OSError:
        return None  # it is gone
    state, parent, _, session = text.rpartition(")")[2].split()[:4]
    return Entry(int(parent), int(session), is_over=state in "ZX")


LONGEST_LINE_BYTES = 65_536
KILL_S = 1.0
"""When a killed program that still exists counts as stuck in a driver."""
AGAIN_S = 0.02
"""Pause after a kill before checking whether all processes are gone."""
_SERVICE_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables from systemd for this process that child processes must not inherit."""


@dataclass(slots=True)
class _Programs:
    """The programs of all `Child` objects."""

    running: set[int] = field(default_factory=set)
    starting: int = 0
    """How many are being started now: their PIDs are not known yet."""
    started: int = 0


_PROGRAMS = _Programs()


class _Protocol(SubprocessStreamProtocol):
    """Detects the end of the program itself, even if another process keeps its output open."""

    def __init__(self, longest_bytes: int) -> None:
        super().__init__(limit=longest_bytes, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()
        self.pid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.pid = transport.get_pid()
        _PROGRAMS.running.add(self.pid)

    def process_exited(self) -> None:
        _PROGRAMS.running.discard(self.pid)
        super().process_exited()
        self.exited.set()


class Child:
    """One program at a time, in a separate session; it ends with this process, and its descendants with it.

    For its descendants see `adopt`.
    """

    def __init__(self) -> None:
        self._transport: asyncio.SubprocessTransport | None = None
        self._protocol: _Protocol | None = None

    @property
    def status(self) -> int | None:
        """The exit status of the last program; None if there was none or it has not ended."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def _runs(self) -> bool:
        return self._transport is not None and self.status is None

    async def start(self, command: Sequence[str], longest_bytes: int = LONGEST_LINE_BYTES) -> asyncio.StreamReader:
        """Start a program, and return its standard output.

        Args:
            command: the program and its arguments.
            longest_bytes: the longest line; a longer one raises an error when it is read.

        Raises:
            OSError: it cannot be started, or a former one still exists.
        """
        if self._runs:
            raise OSError(0, "a previous one still hangs")
        environ = {name: value for name, value in os.environ.items() if name not in _SERVICE_VARIABLES}
        _PROGRAMS.starting += 1
        _PROGRAMS.started += 1
        try:
            self._transport, self._protocol = await asyncio.get_running_loop().subprocess_exec(
                partial(_Protocol, longest_bytes),
                *tethered(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env=environ,
            )
        finally:
            _PROGRAMS.starting -= 1
        assert self._protocol.stdout is not None
        return self._protocol.stdout

    async def ended(self) -> int:
        """Wait for the program, and return its exit status; its descendants may still run."""
        assert self._protocol is not None
        await self._protocol.exited.wait()
        assert self.status is not None
        return self.status

    async def end_rest(self) -> None:
        """Kill its descendants and itself; return after a moment in any case."""
        if self._transport is None or self._protocol is None:
            return
        if self._runs:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                while await _end_some(self._transport.get_pid()):  # noqa: ASYNC110 (there is no event)
                    await asyncio.sleep(AGAIN_S)
                await self._protocol.exited.wait()

    async def end(self) -> None:
        """Do the same, and stop reading its output."""
        await self.end_rest()
        if self._transport is not None:
            self._transport.close()


async def _end_some(pid: int) -> bool:
    """Kill the descendants of the program *pid*, and return whether to check again."""
    before, own = _PROGRAMS.started, os.getpid()
    found = await asyncio.to_thread(processes)
    if _PROGRAMS.starting or _PROGRAMS.started != before:
        return True  # a program that is just being started may be among them
    pids = [*started_by(pid, _PROGRAMS.running - {pid}, found, own)]
    kill(pids, found, own)
    return bool(pids)
