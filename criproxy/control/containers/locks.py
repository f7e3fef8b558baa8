"""One lock for each container: the kubelet's start and update and our own updates take it one after the other.

An update that runs while the container is being started is answered OK and lost in a third of the cases
(measured with containerd 1.6), so nothing of ours is sent then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Busy(Exception):
    """The lock of a container was not given back in time; the text says what its holder waits for."""


class Locks:
    """Locks by container id that exist only while a task holds one or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}
        self._holders: dict[str, str] = {}
        """What goes on under each lock, for those who wait for it in vain."""

    async def enter(self, key: str, what: str, until_s: float | None = None) -> None:
        """Wait for the lock of *key* and take it; `leave` gives it back, from any task.

        A call of the kubelet may hold it for minutes, while it hangs in the runtime.

        Args:
            key: the container.
            what: the call or the work that takes it, as the subject of a sentence.
            until_s: when to give up, on the event loop's clock.

        Raises:
            Busy: it is not free at *until_s*.
        """
        limit_s = until_s if self.busy(key) else None  # a timer costs more than a lock that is free
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with asyncio.timeout_at(limit_s):
                await lock.acquire()
        except TimeoutError:
            holder = self._holders.get(key, "a call")  # none while it passes from one to the next
            self._forget(key)
            raise Busy(holder) from None
        except asyncio.CancelledError:
            self._forget(key)
            raise
        self._holders[key] = what

    async def free(self, key: str) -> None:
        """Return once the lock of *key* was free: for callers that take a scarce slot before the lock."""
        if self.busy(key):
            async with self.of(key, "an update of criproxy"):
                pass

    def busy(self, key: str) -> bool:
        """Whether a task holds the lock of *key* or waits for it."""
        return key in self._locks

    def leave(self, key: str) -> None:
        """Give back the lock of *key*, which the caller holds."""
        self._locks[key].release()
        self._forget(key)

    @asynccontextmanager
    async def of(self, key: str, what: str) -> AsyncIterator[None]:
        """Hold the lock of *key* for a block; *what* as in `enter`."""
        await self.enter(key, what)
        try:
            yield
        finally:
            self.leave(key)

    def _forget(self, key: str) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._locks[key]
            self._holders.pop(key, None)
