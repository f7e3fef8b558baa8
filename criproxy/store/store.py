"""The store as the event loop sees it: a thread of its own does the disk's work, in order.

A process that has been killed may keep the lock: the kernel does not let it end while a disk or a driver does not
answer.
"""

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Concatenate, ParamSpec, TypeVar

from criproxy.errors import StoreError
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.store.database import Database, is_at
from criproxy.store.files import why_refused
from criproxy.store.writing import LeftOut

P = ParamSpec("P")
T = TypeVar("T")
LOCK_NAME = "lock"
CLOSE_S = 2.0
"""How long a disk may take to finish what is queued, at the end."""
_RELEASE = " release"
"""Behind the process in the lock file."""
_PROC = Path("/proc")
_KILL = 1 << (signal.SIGKILL - 1)
_PENDING = ("SigPnd", "ShdPnd")


class InUse(StoreError):
    """Another process has the state directory."""

    def __init__(self, text: str, *, by_release: bool = False, ending: bool = False) -> None:
        super().__init__(text)
        self.by_release = by_release
        """Whether it is a `criproxy release`, which gives the directory back."""
        self.ending = ending
        """Whether it has been killed, and gives the directory back when the kernel lets it end."""


class Store:
    """The state directory of one node; one process may have it open.

    Args:
        directory: made with mode 0700 where it is missing; else `why_refused` says whether it is taken.
        may_fail: go on without it where the directory cannot be used (a full or read-only disk, not one that another
            process has): every save tries to open it anew, and the first one that can writes all there is.
        for_release: another process is told that a `criproxy release` has the directory.

    Opening it blocks, for as long as a disk that hangs.

    Raises:
        InUse: another process has the directory.
        StoreError: it cannot be used; one sentence says why.
    """

    def __init__(self, directory: Path, *, may_fail: bool = False, for_release: bool = False) -> None:
        self.directory = directory
        self._for_release = for_release
        self.missing: str | None = None
        """Why what is on disk is not what we wrote, in one sentence: it could not be opened, or has gone; else None."""
        self._lock = -1
        self._database: Database | None = None
        try:
            self._opened()
        except StoreError as error:
            if isinstance(error, InUse) or not may_fail:
                raise
            self.missing = str(error)
        self._closed = False
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    @property
    def set_aside(self) -> str | None:
        """One sentence about an earlier database that could not be used and was renamed; to be logged loudly."""
        return self._database.set_aside if self._database else None

    @property
    def saved_s(self) -> float | None:
        """When an earlier process saved the node last, in seconds since the epoch; None if that is not known."""
        return self._database.saved_s if self._database else None

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The rows that are not on disk though the last save succeeded: their values cannot be written."""
        return self._database.writer.left_out if self._database else ()

    @property
    def lost_records(self) -> int:
        """How many records could not be written for their values so far."""
        return self._database.history.lost if self._database else 0

    def load(self, topology: Topology) -> Node:
        """The node as it was saved last, on the machine *topology*. Blocks; for the start, before the first save."""
        return self._database.load(topology) if self._database else Node(topology)

    def save(self, before: Node, after: Node, records: Sequence[Record] = ()) -> "asyncio.Future[None]":
        """Write the rows in which *after* differs from *before*, and *records*, in one transaction.

        *before* is the state of the last save that succeeded: so the disk catches up after a failed one. A row or a
        record that cannot be written for its value is left out, and it alone; see `left_out`.

        Raises:
            StoreError: nothing was written: the disk is full, read-only or broken. The next save tries again.
        """
        return self._run(lambda: self._save(before, after, records))

    def is_replaced(self) -> "asyncio.Future[bool]":
        """Whether the open file is not the one in the directory any more, so that the next save fails: without a write.

        Raises:
            StoreError: the directory cannot be read.
        """
        return self._run(self._is_replaced)

    async def read(self, question: Callable[Concatenate[Connection, P], T], *of: P.args, **more: P.kwargs) -> T:
        """Return the answer to a *question* about the history, one of the functions of `history`."""
        return await self._run(lambda: self._opened().read(question, *of, **more))

    def close(self) -> None:
        """Finish what is queued, then give the directory free; again does nothing. Blocks, for `CLOSE_S` at most.

        What a disk that hangs holds is left as it is: it goes with the process.
        """
        if self._closed:
            return
        self._closed = True
        last = self._writer.submit(int)
        is_done = bool(wait([last], CLOSE_S).done)
        self._writer.shutdown(wait=is_done)
        if is_done and self._database:
            self._database.close()
            os.close(self._lock)

    def _opened(self) -> Database:
        """The database, opened where it is not."""
        if self._database is None:
            lock = _lock(self.directory, for_release=self._for_release)
            try:
                self._database = Database(self.directory)
            except StoreError:
                os.close(lock)
                raise
            self._lock = lock
        return self._database

    def _let_go_if_replaced(self) -> None:
        """Where the open file is not the one in the directory any more, no process will read what is written to it.

        Raises:
            StoreError: so it is; the next save opens what is there then.
        """
        database = self._database
        if database is None or not self._is_replaced():
            return
        self._database = None
        database.close()
        os.close(self._lock)
        self.missing = f"the state database {database.path} or its lock was removed or replaced while criproxy used it"
        raise StoreError(self.missing)

    def _is_replaced(self) -> bool:
        database, lock = self._database, self.directory / LOCK_NAME
        return database is not None and not (database.in_place and is_at(os.fstat(self._lock), lock))

    def _save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        self._let_go_if_replaced()
        database = self._opened()
        if self.missing:  # the rows are from an earlier process, and have not been read
            before = database.load(after.topology)
        database.save(before, after, records)
        self.missing = None

    def _run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self._closed:
            raise StoreError("the state database is closed: criproxy is shutting down")
        # Shielded: the new state of the node is written even if its caller no longer waits.
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, work))


def _lock(directory: Path, *, for_release: bool) -> int:
    """Take the directory for this process; the lock goes with the process, however that ends."""
    lock = -1
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := why_refused(directory):
            raise StoreError(f"the state directory {directory} {reason}")
        directory.chmod(0o700)
        lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}{_RELEASE if for_release else ''}".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise _in_use(directory, holder) from error
    except OSError as error:
        if lock >= 0:
            os.close(lock)
        raise StoreError(f"the state directory {directory} cannot be used: {error.strerror}") from error
    return lock


def is_release(directory: Path) -> bool:
    """Whether the process that has the directory says that it is a `criproxy release`."""
    try:
        return _RELEASE in (directory / LOCK_NAME).read_text(errors="replace")
    except OSError:
        return False


def _in_use(directory: Path, holder: str) -> InUse:
    """Return the error about a directory that another process has, of which the lock file says *holder*."""
    process, of_release, _ = holder.partition(_RELEASE)
    if of_release:
        user, advice = f"'criproxy release' (process {process})", "wait until that ends"
        return InUse(f"the state directory {directory} is in use by {user}; {advice}", by_release=True)
    if process.isdecimal() and is_ending(int(process)):
        stays = f"a criproxy (process {process}) that {WHY_IT_STAYS}"
        return InUse(f"the state directory {directory} is in use by {stays}", ending=True)
    return InUse(
        f"the state directory {directory} is in use by another criproxy (process {process}); "
        "stop that one or choose another directory with --state-dir"
    )


def is_ending(pid: int) -> bool:
    """Whether a process exists, and has been killed or has exited."""
    status = _status(_PROC / str(pid))
    killed = any(int(status.get(name, "0"), 16) & _KILL for name in _PENDING)
    return killed or status.get("State", "")[:1] in ("Z", "X")


WHY_IT_STAYS = (
    "has been killed, but cannot end, because the kernel does not let it: usually, a disk or a driver does not answer. "
    "It ends when that answers, or with a restart of the machine; nothing else can end it"
)
"""A sentence about such a process, without its subject, for those who want its lock."""


def _status(place: Path) -> dict[str, str]:
    """Return the fields of a process or thread; none if it has ended."""
    with suppress(OSError):
        lines = (place / "status").read_text(errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
