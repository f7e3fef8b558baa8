"""Tells the daemon who uses how much, when something has changed, and at most once for each period."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.model.plain import to_plain
from criproxy.usage.totals import ClassUse, UsageReport
from criproxy.watcher.daemon import Daemon

COMMAND = "device-usage"
REPEAT_S = 3.0
"""After so long it is told again though it is the same: the daemon may be another one, and takes what it was told for
outdated after three periods and five seconds."""


@dataclass(slots=True, repr=False)
class UsageReports:
    """What the daemon is told of use.

    Args:
        daemon: is told.
        uses: what is known now.
        period_s: between two reports.
    """

    daemon: Daemon
    uses: Callable[[], tuple[ClassUse, ...]]
    period_s: float = 1.0
    repeat_s: float = REPEAT_S
    _told: tuple[ClassUse, ...] | None = None
    _told_s: float = 0.0
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def soon(self) -> None:
        """Something may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Tell for ever: of news, and from time to time without any, as when readings have stopped."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.repeat_s):
                    await self._wanted.wait()
            self._wanted.clear()
            begun_s = time.monotonic()
            await self.tell()
            await asyncio.sleep(max(begun_s + self.period_s / 2 - time.monotonic(), 0))

    async def tell(self) -> None:
        """Tell what is known now, if it is news, or was told long ago.

        Who watches nothing says so once, and only to a daemon that knows otherwise: it may need no daemon.
        """
        uses, now_s = self.uses(), time.monotonic()
        if not uses and not self._told:
            return
        if uses == self._told and now_s - self._told_s < self.repeat_s:
            return
        try:
            await self.daemon.ask(COMMAND, report_of(uses, self.period_s))
        except CriproxyError:
            self._told = None
        else:
            self._told, self._told_s = uses, now_s


def report_of(uses: tuple[ClassUse, ...], period_s: float) -> dict[str, Any]:
    """The arguments of the command."""
    plain: dict[str, Any] = to_plain(UsageReport(at_s=time.time(), period_s=period_s, classes=uses))
    return plain
