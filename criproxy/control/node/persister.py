"""Keeps the newest node on disk, and goes on in memory while the disk fails.

There is one slot: the node as it is now, and the records since the last write. One task writes it, at once where
somebody waits for that, else a little later, together with what comes until then. Every wait for the disk has a limit.
While it fails, only that task tries it, from time to time.

Why not earlier: a change is visible before it is on disk, so that a create that only shares does not wait for the disk
and changes that come at once cost one write. What a crash loses by that, the runtime still shows at the next start.

Why not later: a create that takes exclusive CPUs, or makes others give up theirs, goes to the runtime only when its
place is on disk. After a crash the runtime may have the container, and nothing else would say whose CPUs those are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TypeVar

from criproxy.control.settings import StoreLimits
from criproxy.errors import CriproxyError, StatusCode, StoreError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.observe.counters import Counters
from criproxy.observe.failures import Failures
from criproxy.observe.logger import Log
from criproxy.observe.tasks import OnDemand, Tasks
from criproxy.store.store import NodeStore
from criproxy.store.writing import LeftOut

T = TypeVar("T")
FLUSH_S = 0.1
"""How long a change that nobody waits for may wait for more, to be written together."""
MAX_RECORDS = 2_000
"""Records that wait for the disk; of more the oldest are lost, which is counted. Each is bounded by itself."""


class CannotBeStored(CriproxyError):
    """State of one container that no disk would take, such as a number that is too large; the text names it."""

    code = StatusCode.INVALID_ARGUMENT


_STOOD_STILL = 1.25
"""A wait that took so much longer than it should: this process stood still, as in a virtual machine that is paused, and
the disk had no time to answer either. It gets its time anew, once."""


class Persister:
    """Writes the newest node and what the history shall tell; for the event loop's thread.

    Args:
        node: the node as the store has it.
        store: where it goes.
        limits: how long to wait, and when to try again.
        counters: failures are counted here.
        log: told when the disk begins to fail, and when it is back.
        failures: told of what cannot be written for its value, and of records that are lost.
        tasks: run the task that writes; `close` ends all of them.
    """

    def __init__(
        self,
        node: Node,
        store: NodeStore,
        limits: StoreLimits,
        counters: Counters,
        log: Log,
        failures: Failures,
        tasks: Tasks,
    ) -> None:
        self.error: StoreError | None = None
        """Why what is on disk is out of date; None when it is not."""
        self.failing_since_s: float | None = None
        """Since when, on the monotonic clock."""
        self._node = self._stored = node
        """As it shall be on disk, and as it is there as far as we know."""
        self._records = list[Record]()
        self._version = self._written = 0
        """Changes of node and records so far, and those of them that are on disk."""
        self._waiting = list[tuple[int, bool, asyncio.Future[None]]]()
        """Who waits for which version, and whether for its records, too."""
        self._write_in_flight: asyncio.Future[None] | None = None
        self._store = store
        self._limits = limits
        self._counters = counters
        self._log = log
        self._failures = failures
        self._tasks = tasks
        self._worker = OnDemand(tasks, "store", self._run, FLUSH_S)
        self._checked = False
        self._told: Sequence[LeftOut] = ()
        """What was left out of which the log was told."""
        self._lost_records = 0

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What is not on disk although the disk works: rows whose values cannot be written."""
        return self._store.left_out

    def put(self, node: Node) -> None:
        """*node* shall be on disk soon, in place of those before it."""
        self._node = node
        self._version += 1
        if self._checked:
            self._worker.soon()
        else:
            self.look()

    def add(self, record: Record) -> None:
        """*record* shall be on disk soon; it is written with the node as it is then."""
        self._records.append(record)
        self._version += 1
        self._drop_oldest()
        self._worker.soon()

    def look(self) -> None:
        """See whether the disk takes what is written, in the background: a quiet node writes nothing else."""
        self._worker.now()

    async def durable(self, own: str = "") -> None:
        """Return when the newest node is on disk; its records follow, so that a call does not wait for them.

        Args:
            own: the container without whose row the rest of it is of no use; it may be left out for its value.

        Raises:
            StoreError: the disk fails, or has not answered in time; it may be written later all the same.
            CannotBeStored: the row of *own* cannot be written, whatever the disk does.
        """
        if self.error is not None:
            raise StoreError(str(self.error))
        if self._stored is not self._node:
            await self._wait(records=False)
        if own and (left := next((left for left in self.left_out if left.key == own), None)):
            raise CannotBeStored(f"the state of {left.title} cannot be stored: {left.reason}")

    async def flush(self) -> None:
        """Return when all that was put and added so far is on disk, or the disk is known to fail."""
        if self._written < self._version:
            await self.check()

    async def check(self) -> None:
        """Write, whether there is something to write or not, and return when `error` tells what came of it."""
        if self.error is None:
            with suppress(StoreError):
                await self._wait(records=True)

    async def find(self, text: str) -> list[Record]:
        """What the history tells about *text*, see `NodeStore.find`; raises StoreError, also when it takes too long."""
        return await self._read(lambda: self._store.find(text))

    async def newest(self, kind: Kind, lives: Sequence[str]) -> list[Record]:
        """The last record of a kind of each container, see `NodeStore.newest`; raises StoreError as `find`."""
        return await self._read(lambda: self._store.newest(kind, lives))

    async def since(self, after: int, without: Iterable[Kind]) -> tuple[list[Record], int]:
        """The newest records after number *after*, see `NodeStore.since`; raises StoreError as `find`."""
        return await self._read(lambda: self._store.since(after, without))

    async def close(self) -> None:
        """Write what is not written yet, or try for the last time where the disk fails; ends the tasks."""
        await self.flush()
        await self._tasks.stop()
        is_stuck = self._write_in_flight is not None and not self._write_in_flight.done()
        if self._written < self._version and not is_stuck:
            with suppress(Exception):  # it is told below
                async with asyncio.timeout(self._limits.timeout_s):
                    await self._write()
        if self._written < self._version:
            changes = self._version - self._written
            self._log.error("state lost: the runtime is asked at the next start", changes=changes)

    async def _wait(self, *, records: bool) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._version, records, done))
        self._worker.now()
        await done

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        if self.error is not None:
            raise self.error
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await read()
        except TimeoutError:
            raise StoreError(f"the history could not be read within {self._limits.timeout_s:g} s") from None

    async def _run(self) -> None:
        """Write once, and again until the disk takes it and nobody waits any more."""
        self._checked, pause_s = True, self._limits.retry_pause_s
        while True:
            try:
                await self._write()
            except Exception as error:  # noqa: BLE001 (nobody else tries it: whatever it was, it is tried again)
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
        """Write what is newest; one that takes too long is a failure, and is waited for: there is one thread."""
        version, whole = self._version, all(records for _, records, _ in self._waiting)
        records, self._records = (self._records, []) if whole else ([], self._records)
        try:
            write = self._write_in_flight = asyncio.ensure_future(self._store.save(self._stored, self._node, records))
        except Exception:
            self._records = records + self._records  # a store may fail at once: nothing is lost by that
            raise
        write.add_done_callback(partial(self._ended, self._node, version if whole else self._written, records))
        if not await self._in_time(write):
            limit_s = self._limits.timeout_s
            self._fail(StoreError(f"the state could not be stored: the disk has not answered for {limit_s:g} s"))
            await asyncio.wait([write])
        write.result()
        self._succeeded(version, whole=whole)

    def _ended(self, node: Node, version: int, records: list[Record], write: "asyncio.Future[None]") -> None:
        """Know what is on disk, whether anybody still waits for this write or not."""
        if write.cancelled() or write.exception():
            self._records = records + self._records
            self._drop_oldest()
        else:
            self._stored, self._written = node, version

    async def _in_time(self, write: "asyncio.Future[None]") -> bool:
        for _ in range(2):
            begun_s = monotonic()
            await asyncio.wait([write], timeout=self._limits.timeout_s)
            if write.done() or monotonic() - begun_s <= _STOOD_STILL * self._limits.timeout_s:
                break
        return write.done()

    def _fail(self, error: Exception) -> None:
        """Everybody goes on in memory, and whoever waits for the disk is told."""
        if self.error is None:
            self.failing_since_s = monotonic()
            self._log.error("state cannot be stored; criproxy continues in memory", error=str(error))
        self._counters.store_failures += 1
        failed = error if isinstance(error, StoreError) else StoreError(f"the state could not be stored: {error!r}")
        self.error = failed
        waiting, self._waiting = self._waiting, []
        for *_, done in waiting:
            if not done.done():
                done.set_exception(StoreError(str(failed)))

    def _succeeded(self, written: int, *, whole: bool) -> None:
        if self.error is not None:
            failed_s = monotonic() - (self.failing_since_s or 0.0)
            self.error = self.failing_since_s = None
            self._log.warning("state is stored again", failed_s=round(failed_s, 1))
        self._tell_left_out()
        for version, records, done in self._waiting:
            if version <= written and (whole or not records) and not done.done():
                done.set_result(None)
        self._waiting = [each for each in self._waiting if not each[2].done()]

    def _drop_oldest(self) -> None:
        """Keep the newest records, and tell how many are lost."""
        for _ in range(len(self._records) - MAX_RECORDS):
            self._failures.add("telling", "an entry of the history is lost: too many waited for the disk")
        del self._records[:-MAX_RECORDS]

    def _tell_left_out(self) -> None:
        """Count and log what was left out just now; it is not tried again until it changes."""
        now, lost = self.left_out, self._store.lost_records - self._lost_records
        for left in now if now is not self._told else ():
            if left not in self._told:
                self._failures.counts["row"] += 1
                self._log.error("state that cannot be stored is left out", about=left.title, error=left.reason)
        self._told, self._lost_records = now, self._lost_records + lost
        if lost:
            self._failures.add("telling", "an entry of the history could not be stored: its values cannot be written")
