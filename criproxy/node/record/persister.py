"""Keeps the newest node on disk, and continues in memory while the disk fails.

There is one slot: the current node, and the records since the last write. One task writes it: at once if a caller waits
for that, otherwise a little later, together with the changes until then. Every wait for the disk has a limit. While the
disk fails, only that task retries, from time to time.

Why not earlier: a change is visible before it is on disk, so that a create of a shared container does not wait for the
disk, and concurrent changes cost one write. What a crash loses by that, the runtime still reports at the next start.

Why not later: a create that takes exclusive CPUs, or CPUs of other containers, goes to the runtime only when its place
is on disk. After a crash the runtime may have the container, and nothing else would record whose CPUs those are.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from sqlite3 import Connection
from time import monotonic
from typing import Concatenate, ParamSpec, TypeVar

from criproxy.errors import CriproxyError, StatusCode, StoreError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.node.counters import Counters
from criproxy.node.settings import StoreLimits
from criproxy.process.failures import Failures
from criproxy.process.logger import Log
from criproxy.process.tasks import OnDemand, Tasks
from criproxy.store.store import Store
from criproxy.store.writing import LeftOut

P = ParamSpec("P")
T = TypeVar("T")
FLUSH_S = 0.1
"""How long a change waits for further changes, to be written together with them, if no caller waits for it."""
LATER_S = 2.0
"""How long what a decision was chosen from waits for another change, to be written with it: it comes after all others,
and would be most of the writes of a node where one container comes or goes at a time."""
MAX_RECORDS = 2_000
"""Records that wait for the disk; if there are more, the oldest are lost, which is counted. Each has a bounded size."""
MANY_RECORDS = 100
"""With so many, the next write has them, too, though a caller waits for the node alone: calls that follow each other
without a pause would otherwise keep the history from the disk until entries are lost. They take milliseconds."""


class CannotBeStored(CriproxyError):
    """The state of one container cannot be stored, for example because a number is too large; the text names it."""

    code = StatusCode.INVALID_ARGUMENT


_STOOD_STILL = 1.25
"""A wait that took longer than its limit by this factor: this process stood still, as in a virtual machine that is
paused, and the disk had no time to answer either. The wait is repeated once."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A caller that waits for the disk."""

    version: int
    """Which has to be on disk."""
    records: bool
    """Whether its records have to be there, too."""
    first_write: int
    """The number of the first write that counts."""
    done: "asyncio.Future[None]"


@dataclass(repr=False, eq=False)
class Persister:
    """Writes the newest node and the records of the history. Use only in the event loop's thread.

    Args:
        node: the node as it is in the store.
        store: receives the writes.
        limits: how long to wait, and when to retry.
        counters: count failed writes.
        log: receives a line when the disk begins to fail, and when it works again.
        failures: counts rows whose values cannot be written, and receives records that are lost.
        tasks: run the task that writes; `close` ends all of them.
    """

    _stored: Node
    """The node that is on disk, as far as is known."""
    _store: Store
    _limits: StoreLimits
    _counters: Counters
    _log: Log
    _failures: Failures
    _tasks: Tasks
    error: StoreError | None = None
    """Why the state on disk is out of date; None if it is not."""
    failing_since_s: float | None = None
    """When the disk began to fail, on the monotonic clock."""
    _records: list[Record] = field(default_factory=list)
    _version: int = 0
    """The number of changes of node and records so far."""
    _written: int = 0
    """How many of them are on disk."""
    _together: int = 0
    """As many of them, at least, are in the next write."""
    _begun_writes: int = 0
    _waiting: list[_Waiting] = field(default_factory=list)
    _write_in_flight: "asyncio.Future[None] | None" = None
    _checked: bool = False
    _logged: Sequence[LeftOut] = ()
    """The rows left out that were logged."""
    _lost_records: int = 0
    _later: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._node = self._stored  # the node that should be on disk
        self._worker = OnDemand(self._tasks, "store", self._run, FLUSH_S)

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The rows that are not on disk although the disk works, because their values cannot be written."""
        return self._store.left_out

    def put(self, node: Node) -> None:
        """Write *node* to disk soon, in place of those before it."""
        self._node = node
        self._version += 1
        if self._checked:
            self._worker.soon()
        else:
            self.check_soon()

    def add(self, record: Record) -> None:
        """Write *record* to disk soon, together with the node as it is then."""
        self._records.append(record)
        self._version += 1
        self._drop_oldest()
        if record.kind is not Kind.CONSIDERED:
            self._worker.soon()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._write_later)

    def keep_together(self) -> None:
        """Write the records so far with the next node, also if a caller waits for the node alone: only they tell it."""
        self._together = self._version

    def check_soon(self) -> None:
        """Check in the background whether the disk accepts writes: on an idle node, there are no other writes."""
        self._worker.now()

    def look_soon(self) -> None:
        """Check in the background whether the files are still there: a write only if they are not, or it is unknown."""
        if self.error is None and (self._write_in_flight is None or self._write_in_flight.done()):
            with suppress(StoreError):  # it is closed
                self._store.is_replaced().add_done_callback(self._looked)

    def _looked(self, looked: "asyncio.Future[bool]") -> None:
        if not looked.cancelled() and (looked.exception() or looked.result()):
            self.check_soon()

    async def durable(self, own: str = "") -> None:
        """Wait until the newest node is on disk; its records follow, so that a call does not wait for them.

        Args:
            own: key of the container whose row must be on disk, too; its values may be impossible to write.

        Raises:
            StoreError: the disk fails, or has not answered in time; the node may still be written later.
            CannotBeStored: the row of *own* cannot be written, even if the disk works.
        """
        if self.error is not None:
            raise StoreError(str(self.error))
        if self._stored is not self._node:
            await self._wait(records=False)
        if own and (left := next((left for left in self.left_out if left.key == own), None)):
            raise CannotBeStored(f"the state of {left.title} cannot be stored: {left.reason}")

    async def flush(self) -> None:
        """Wait until everything that was put and added so far is on disk, or the disk is known to fail."""
        if self._written < self._version and self.error is None:
            with suppress(StoreError):
                await self._wait(records=True)

    async def check(self) -> None:
        """Write even if there is nothing to write, and return when `error` has the outcome.

        A write that has already begun does not count: what it succeeds with may have been the last free space.
        """
        if self.error is None:
            with suppress(StoreError):
                await self._wait(records=True, anew=True)

    async def read(self, question: Callable[Concatenate[Connection, P], T], *of: P.args, **more: P.kwargs) -> T:
        """Return the answer to a question about the history, as `Store.read`; raise StoreError, also if it is slow."""
        if self.error is not None:
            raise self.error
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await self._store.read(question, *of, **more)
        except TimeoutError:
            raise StoreError(f"the history could not be read within {self._limits.timeout_s:g} s") from None

    async def close(self) -> None:
        """Write what is not written yet, or try it a last time if the disk fails; then end the tasks."""
        await self.flush()
        if self._later:
            self._later.cancel()
        await self._tasks.stop()
        is_stuck = self._write_in_flight is not None and not self._write_in_flight.done()
        if self._written < self._version and not is_stuck:
            with suppress(Exception):  # it is logged below
                async with asyncio.timeout(self._limits.timeout_s):
                    await self._write()
        if self._written < self._version:
            changes = self._version - self._written
            self._log.error("state lost: the runtime is asked at the next start", changes=changes)

    async def _wait(self, *, records: bool, anew: bool = False) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first = self._begun_writes + 1 if anew else 0
        self._waiting.append(_Waiting(self._version, records, first, done))
        self._worker.now()
        await done

    def _write_later(self) -> None:
        self._later = None
        if self._written < self._version:
            self._worker.soon()

    async def _run(self) -> None:
        """Write once, and again until a write succeeds and no caller waits any more."""
        self._checked, pause_s = True, self._limits.retry_pause_s
        while True:
            try:
                await self._write()
            except Exception as error:  # noqa: BLE001 (only this task writes: it retries after any error)
                self._fail(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._limits.retry_limit_s)
            else:
                if not self._waiting:
                    break
                pause_s = self._limits.retry_pause_s
        if self._written < self._version:
            self._worker.soon()

    async def _write(self) -> None:
        """Write the newest state. A write that takes too long is a failure, but is awaited: there is one thread."""
        version = self._version
        is_due = self._written < self._together or len(self._records) >= MANY_RECORDS
        whole = is_due or all(each.records for each in self._waiting)
        records, self._records = (self._records, []) if whole else ([], self._records)
        self._begun_writes += 1
        try:
            write = self._write_in_flight = asyncio.ensure_future(self._store.save(self._stored, self._node, records))
        except Exception:
            self._records = records + self._records  # a store may fail at once: no record is lost by that
            raise
        write.add_done_callback(partial(self._ended, self._node, version if whole else self._written, records))
        if not await ends_in_time(write, self._limits.timeout_s):
            limit_s = self._limits.timeout_s
            self._fail(StoreError(f"the state could not be stored: the disk has not answered for {limit_s:g} s"))
            await asyncio.wait([write])
        write.result()
        self._succeeded(version, whole=whole)

    def _ended(self, node: Node, version: int, records: list[Record], write: "asyncio.Future[None]") -> None:
        """Remember what is on disk, even if no caller waits for this write any more."""
        if write.cancelled() or write.exception():
            self._records = records + self._records
            self._drop_oldest()
        else:
            self._stored, self._written = node, version

    def _fail(self, error: Exception) -> None:
        """Continue in memory, and raise StoreError in all callers that wait for the disk."""
        if self.error is None:
            self.failing_since_s = monotonic()
            self._log.error("state cannot be stored; criproxy continues in memory", error=str(error))
        self._counters.store_failures += 1
        if not isinstance(error, StoreError):  # nothing that a disk does
            self._tasks.failed("background", "store the state", error)
            error = StoreError(f"the state could not be stored: {error!r}")
        self.error = error
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done.done():
                each.done.set_exception(StoreError(str(error)))

    def _succeeded(self, written: int, *, whole: bool) -> None:
        if self.error is not None:
            failed_s = monotonic() - (self.failing_since_s or 0.0)
            self.error = self.failing_since_s = None
            self._log.warning("state is stored again", failed_s=round(failed_s, 1))
        self._report_left_out()
        for each in self._waiting:
            is_late_enough = each.first_write <= self._begun_writes  # this write is the last one that has begun
            if each.version <= written and is_late_enough and (whole or not each.records) and not each.done.done():
                each.done.set_result(None)
        self._waiting = [each for each in self._waiting if not each.done.done()]

    def _drop_oldest(self) -> None:
        """Keep the newest records, and report how many are lost."""
        for _ in range(len(self._records) - MAX_RECORDS):
            self._failures.add("telling", "an entry of the history is lost: too many waited for the disk")
        del self._records[:-MAX_RECORDS]

    def _report_left_out(self) -> None:
        """Count and log the rows that were left out just now; they are not retried until they change."""
        now, lost = self.left_out, self._store.lost_records - self._lost_records
        for left in now if now is not self._logged else ():
            if left not in self._logged:
                self._failures.counts["row"] += 1
                self._log.error("state that cannot be stored is left out", about=left.title, error=left.reason)
        self._logged, self._lost_records = now, self._lost_records + lost
        if lost:
            self._failures.add("telling", "an entry of the history could not be stored: its values cannot be written")


async def ends_in_time(write: "asyncio.Future[None]", limit_s: float) -> bool:
    """Wait for a *write* in a thread, *limit_s* at most; return whether it has ended, in whatever way."""
    for _ in range(2):
        begun_s = monotonic()
        await asyncio.wait([write], timeout=limit_s)
        if write.done() or monotonic() - begun_s <= _STOOD_STILL * limit_s:
            break
    return write.done()
