"""Keeps the node on disk, and goes on in memory while the disk fails.

Every wait for the disk has a limit. While it fails, nobody but one task of ours tries it, from time to time; what
happened meanwhile is written when it is back.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from criproxy.control.counters import Counters
from criproxy.control.failures import Failures
from criproxy.control.settings import Log, StoreLimits
from criproxy.errors import CriproxyError, StatusCode, StoreError
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.store.record import Kind, Record
from criproxy.store.writing import LeftOut

MAX_WAITING = 64
"""Changes that wait for the disk with their history; of older ones only the outcome is written."""


class NodeStore(Protocol):
    """Where a node is kept over restarts."""

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The rows that are not there though the last save succeeded: their values cannot be written."""
        ...

    @property
    def lost_records(self) -> int:
        """How many records could not be written for their values so far."""
        ...

    def load(self, topology: Topology) -> Node:
        """The node as it was saved last."""
        ...

    def save(self, before: Node, after: Node, records: Sequence[Record]) -> Awaitable[None]:
        """Write the rows that differ and the records, in one transaction; raises StoreError."""
        ...

    async def find(self, text: str) -> list[Record]:
        """The history of all containers that *text* may mean: a beginning of an id, or NAMESPACE/POD/CONTAINER."""
        ...

    async def newest(self, kind: Kind, lives: Sequence[str]) -> list[Record]:
        """Of each of the containers *lives* the last record of that kind, if there is one."""
        ...


class CannotBeStored(CriproxyError):
    """State of one container that no disk would take, such as a number that is too large; the text names it."""

    code = StatusCode.INVALID_ARGUMENT


@dataclass(frozen=True, slots=True)
class Change:
    """What goes to the disk at once."""

    node: Node
    """As it is then."""
    records: Sequence[Record] = ()
    """What the history shall tell of how it came to that."""


_STOOD_STILL = 1.25
"""A wait that took so much longer than it should: this process stood still, as in a virtual machine that is paused, and
the disk had no time to answer either. It gets its time anew, once."""


class Persister:
    """Writes one change after the other; its caller waits for one before it comes with the next.

    Args:
        node: the node as the store has it.
        store: where it goes.
        limits: how long to wait, and when to try again.
        counters: failures are counted here.
        log: told when the disk begins to fail, and when it is back.
        failures: told of what cannot be written for its value.
    """

    def __init__(
        self,
        node: Node,
        store: NodeStore,
        limits: StoreLimits,
        counters: Counters,
        log: Log,
        failures: Failures | None = None,
    ) -> None:
        self.error: StoreError | None = None
        """Why what is on disk is out of date; None when it is not."""
        self.failing_since_s: float | None = None
        """Since when, on the monotonic clock."""
        self._truth = node
        """As it shall be on disk in the end."""
        self._stored = node
        """As it is there, as far as we know."""
        self._store = store
        self._limits = limits
        self._counters = counters
        self._log = log
        self._failures = failures or Failures()
        self._told: Sequence[LeftOut] = ()
        """What was left out of which the log was told."""
        self._lost_records = 0
        self._waiting: deque[Change] = deque(maxlen=MAX_WAITING)
        self._stuck: asyncio.Future[None] | None = None
        """A write that took too long and may still succeed."""
        self._stuck_node = node
        self._retry: asyncio.Task[None] | None = None

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What is not on disk although the disk works: rows whose values cannot be written."""
        return self._store.left_out

    async def save(self, change: Change, *, needed: bool, own: str = "") -> None:
        """Write *change*.

        Args:
            change: what was decided.
            needed: nothing may come of it unless it is on disk; all others count in any case, and are written later.
            own: the container without whose row the rest of it is of no use, where it is *needed*.

        Raises:
            StoreError: it is *needed* and not on disk.
            CannotBeStored: the row of *own* cannot be written, whatever the disk does.
        """
        if self.error is None:
            try:
                await self._write(change)
            except StoreError as error:
                self._begin_to_fail(error)
            else:
                self._truth = change.node
                self._tell_left_out()
                if own and (left := next((left for left in self.left_out if left.key == own), None)):
                    raise CannotBeStored(f"the state of {left.title} cannot be stored: {left.reason}")
                return
        if not needed:
            self._truth = change.node
            self._waiting.append(change)
        elif self.error is not None:
            raise StoreError(str(self.error))

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

    def has(self, node: Node) -> bool:
        """Whether *node* is what is on disk, or will be as soon as the disk works."""
        return node is self._truth

    async def find(self, text: str) -> list[Record]:
        """What the history tells about *text*, see `NodeStore.find`; raises StoreError, also when it takes too long."""
        return await self._read(lambda: self._store.find(text))

    async def newest(self, kind: Kind, lives: Sequence[str]) -> list[Record]:
        """The last record of a kind of each container, see `NodeStore.newest`; raises StoreError as `find`."""
        return await self._read(lambda: self._store.newest(kind, lives))

    async def _read(self, read: Callable[[], Awaitable[list[Record]]]) -> list[Record]:
        if self.error is not None:
            raise self.error
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await read()
        except TimeoutError:
            raise StoreError(f"the history could not be read within {self._limits.timeout_s:g} s") from None

    async def check(self) -> None:
        """See whether the disk takes what is written, before anything depends on it."""
        await self.save(Change(self._stored), needed=False)

    async def close(self) -> None:
        """Try for the last time, if something waits for the disk."""
        if self._retry is not None:
            self._retry.cancel()
            await asyncio.wait([self._retry])
        if self._waiting and self._stuck is None:
            with suppress(StoreError):
                await self._catch_up()
        if self._waiting:
            self._log.error("state lost: the runtime is asked at the next start", changes=len(self._waiting))

    def _begin_to_fail(self, error: StoreError) -> None:
        self.error, self.failing_since_s = error, monotonic()
        self._log.error("state cannot be stored; going on in memory", error=str(error))
        self._retry = asyncio.get_running_loop().create_task(self._try_again(), name="store")

    async def _try_again(self) -> None:
        pause_s = self._limits.retry_pause_s
        while self.error is not None:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, self._limits.retry_limit_s)
            try:
                await self._unstick()
                await self._catch_up()
            except Exception as error:  # noqa: BLE001 (nobody else tries it: whatever it was, it is tried again)
                self.error = error if isinstance(error, StoreError) else StoreError(f"not stored: {error!r}")
            else:
                failed_s = monotonic() - (self.failing_since_s or 0.0)
                self.error = self.failing_since_s = None
                self._log.warning("state is stored again", failed_s=round(failed_s, 1))

    async def _unstick(self) -> None:
        """Wait for the end of a write that took too long: there is one thread, and it is at it."""
        if self._stuck is None:
            return
        await asyncio.wait([self._stuck])
        stuck, self._stuck = self._stuck, None
        if not stuck.exception():
            self._stored = self._stuck_node
            if self._waiting and self._waiting[0].node is self._stored:
                self._waiting.popleft()

    async def _catch_up(self) -> None:
        """Write what waits, or else the truth: to see whether the disk works, and over what came too late."""
        if not self._waiting:
            await self._write(Change(self._truth))
        while self._waiting:
            change = self._waiting[0]
            await self._write(change)
            if self._waiting and self._waiting[0] is change:
                self._waiting.popleft()

    async def _write(self, change: Change) -> None:
        write, begun_s = asyncio.ensure_future(self._store.save(self._stored, change.node, change.records)), monotonic()
        done, _ = await asyncio.wait([write], timeout=self._limits.timeout_s)
        if not done and monotonic() - begun_s > _STOOD_STILL * self._limits.timeout_s:
            done, _ = await asyncio.wait([write], timeout=self._limits.timeout_s)
        if not done:
            self._stuck, self._stuck_node = write, change.node
            self._counters.store_failures += 1
            raise StoreError(
                f"the state could not be stored: the disk has not answered for {self._limits.timeout_s:g} s"
            )
        if error := write.exception():
            self._counters.store_failures += 1
            if isinstance(error, StoreError):
                raise error
            raise StoreError(f"the state could not be stored: {error!r}") from error
        self._stored = change.node
