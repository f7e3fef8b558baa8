"""Reports the use of cards to the daemon when it has changed, at most once in each period."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.model.plain import to_plain
from criproxy.usage.totals import ClassUse, UsageReport
from criproxy.watcher.daemon_client import DaemonClient

COMMAND = "device-usage"
REPEAT_S = 3.0
"""After so long, an unchanged use is reported again: the daemon may have been restarted, and considers a report
outdated after three periods and five seconds."""


@dataclass(slots=True, repr=False)
class UsageReports:
    """Sends the reports.

    Args:
        daemon: gets the reports.
        uses: returns the current use of each class.
        period_s: the minimum time between two reports.
        repeat_s: the time after which an unchanged use is reported again.
    """

    daemon: DaemonClient
    uses: Callable[[], tuple[ClassUse, ...]]
    period_s: float = 1.0
    repeat_s: float = REPEAT_S
    _reported: tuple[ClassUse, ...] | None = None
    _reported_s: float = 0.0
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def soon(self) -> None:
        """Report soon: the use may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Report changes, and regularly without any, as when there are no more readings."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.repeat_s):
                    await self._wanted.wait()
            self._wanted.clear()
            begun_s = time.monotonic()
            await self.report()
            await asyncio.sleep(max(begun_s + self.period_s / 2 - time.monotonic(), 0))

    async def report(self) -> None:
        """Report the current use, if it has changed or the last report is old.

        A watcher that watches nothing reports that once, and only to a daemon with an earlier report: it may need no
        daemon.
        """
        uses, now_s = self.uses(), time.monotonic()
        if not uses and not self._reported:
            return
        if uses == self._reported and now_s - self._reported_s < self.repeat_s:
            return
        try:
            await self.daemon.ask(COMMAND, report_of(uses, self.period_s))
        except CriproxyError:
            self._reported = None
        else:
            self._reported, self._reported_s = uses, now_s


def report_of(uses: tuple[ClassUse, ...], period_s: float) -> dict[str, Any]:
    """Return the arguments of the command ``device-usage``."""
    plain: dict[str, Any] = to_plain(UsageReport(at_s=time.time(), period_s=period_s, classes=uses))
    return plain
