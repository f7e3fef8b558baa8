"""A value that others follow: a version that counts its changes, and what waits for the next one."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, repr=False, eq=False)
class Changes:
    """Counts changes and wakes up those that wait; a base class of what is followed.

    No change is missed, even one during `act`, by::

        while True:
            seen = followed.version
            await act()
            await followed.changed(seen)
    """

    version: int = field(default=0, init=False)
    _next: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def notify(self) -> None:
        """Count a change, and wake up all that wait for it."""
        self.version += 1
        self._next.set()
        self._next = asyncio.Event()

    async def changed(self, since: int) -> int:
        """Return the version once it differs from *since*."""
        while self.version == since:
            await self._next.wait()
        return self.version


async def any_changed(followed: Iterable[Changes], since: Iterable[int]) -> None:
    """Return once the version of one of *followed* differs from its version in *since*, in the same order."""
    waiting = [asyncio.ensure_future(each.changed(version)) for each, version in zip(followed, since, strict=True)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
