"""Reports the use of cards to the daemon when it has changed, at most once in each period."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from criproxy.deviceplugin.daemon_client.daemon_client import DaemonClient
from criproxy.devices.usage.totals import ClassUse, UsageReport, plain_report
from criproxy.errors import CriproxyError

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
    _begun_s: float = 0.0
    """When the last report was due."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Report soon: the use may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Report changes, and regularly without any, as when there are no more readings."""
        try:
            self._repeat()
            while True:
                await self._wanted.wait()
                left_s = self._begun_s + self.period_s / 2 - time.monotonic()
                if left_s > 0:
                    await asyncio.sleep(left_s)
                self._wanted.clear()
                self._begun_s = time.monotonic()
                await self.report()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.daemon.hang_up(COMMAND)

    def _repeat(self) -> None:
        """Report again if nothing was reported for `repeat_s`; one timer for many reports, most of which are news."""
        left_s = self._begun_s + self.repeat_s - time.monotonic()
        if left_s <= 0:
            self._wanted.set()
        self._timer = asyncio.get_running_loop().call_later(left_s if left_s > 0 else self.repeat_s, self._repeat)

    async def report(self) -> None:
        """Report the current use, if it has changed or the last report is old.

        Whether the daemon has accepted a report is found out before the next one. A watcher that watches nothing
        reports that once, and only to a daemon with an earlier report: it may need no daemon.
        """
        if not await self.daemon.is_told(COMMAND):
            self._reported = None
        uses, now_s = self.uses(), time.monotonic()
        if not uses and not self._reported:
            return
        if uses == self._reported and now_s - self._reported_s < self.repeat_s:
            return
        try:
            await self.daemon.tell(COMMAND, report_of(uses, self.period_s))
        except CriproxyError:
            self._reported = None
        else:
            self._reported, self._reported_s = uses, now_s


def report_of(uses: tuple[ClassUse, ...], period_s: float) -> dict[str, Any]:
    """Return the arguments of the command ``device-usage``."""
    return plain_report(UsageReport(at_s=time.time(), period_s=period_s, classes=uses))
