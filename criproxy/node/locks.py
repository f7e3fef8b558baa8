"""Per-container locks: the kubelet's starts and updates and our own updates take them one after the other.

An update that runs while the container is being started is answered OK and lost in a third of the cases
(measured with containerd 1.6), so criproxy sends no update then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Busy(Exception):
    """The lock of a container was not released in time; the text names the call or work that holds it."""


class Locks:
    """Locks by container id that exist only while a task holds one or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}
        self._holders: dict[str, str] = {}
        """The call or work that holds each lock, for the error of those that wait in vain."""

    async def enter(self, key: str, what: str, until_s: float | None = None) -> None:
        """Acquire the lock of *key*; `leave` releases it, from any task.

        A call of the kubelet may hold it for minutes while it hangs in the runtime.

        Args:
            key: the container.
            what: the call or work that takes the lock, as the subject of a sentence.
            until_s: when to give up, on the event loop's clock.

        Raises:
            Busy: the lock is not free at *until_s*.
        """
        is_free = not self.busy(key)
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            if is_free:  # at once: a limit costs more than the lock
                await lock.acquire()
            else:
                async with asyncio.timeout_at(until_s):
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
        """Wait until the lock of *key* was free: for callers that take a scarce slot before the lock."""
        if self.busy(key):
            async with self.of(key, "an update of criproxy"):
                pass

    def busy(self, key: str) -> bool:
        """Whether a task holds the lock of *key* or waits for it."""
        return key in self._locks

    def leave(self, key: str) -> None:
        """Release the lock of *key*, which the caller holds."""
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
