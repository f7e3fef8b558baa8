"""One lock for each container: the kubelet's start and update and our own updates take it one after the other.

An update that runs while the container is being started is answered OK and lost in a third of the cases
(measured with containerd 1.6), so nothing of ours is sent then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Locks:
    """Locks by container id that exist only while a task holds one or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    async def enter(self, key: str) -> None:
        """Wait for the lock of *key* and take it; `leave` gives it back, from any task."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            await lock.acquire()
        except asyncio.CancelledError:
            self._forget(key)
            raise

    async def free(self, key: str) -> None:
        """Return once the lock of *key* was free: for callers that take a scarce slot before the lock."""
        if self.busy(key):
            async with self.of(key):
                pass

    def busy(self, key: str) -> bool:
        """Whether a task holds the lock of *key* or waits for it."""
        return key in self._locks

    def leave(self, key: str) -> None:
        """Give back the lock of *key*, which the caller holds."""
        self._locks[key].release()
        self._forget(key)

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of *key* for a block."""
        await self.enter(key)
        try:
            yield
        finally:
            self.leave(key)

    def _forget(self, key: str) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._locks[key]
