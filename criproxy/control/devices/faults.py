"""What went wrong in the rule about devices itself, for `status --check`: it is caught where it happens."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.control.counters import Counters
from criproxy.control.settings import Log, OnError
from criproxy.views.notices import Notice

REMEMBERED_S = 3600.0
"""How long status tells of a failure."""
_MOST = 1000
"""Failures that are counted within that time."""
_OUTCOME = "container sees no card that its create does not prove to be its own"
_REFUSED = "create is refused, and tried again (onError: refuse)"


@dataclass(slots=True)
class DeviceFaults:
    """Remembers failures of the last hour; noting one never fails."""

    log: Log
    counters: Counters
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    _times_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST))
    _container: str = ""

    @property
    def last_s(self) -> float:
        """When the last one happened, by the clock; 0 before the first."""
        return self._times_s[-1] if self._times_s else 0.0

    def note(self, doing: str, container: str, error: Exception) -> None:
        """Something failed at the create of *container*, while *doing*; the log alone has the error's text."""
        self._times_s.append(self.clock())
        self._container = container
        self.counters.devices["", "failed"] += 1
        with suppress(Exception):  # what failed may have been the log
            self.log.error("the rule about devices failed", doing=doing, container=container, exc_info=error)

    def notice(self, on_error: OnError) -> Notice | None:
        """One sentence about the last hour, and what becomes of such creates; None where nothing failed."""
        since_s = self.clock() - REMEMBERED_S
        if not (recent := sum(at_s > since_s for at_s in self._times_s)):
            return None
        times = "once" if recent == 1 else f"{recent} times"
        text = (
            f"the rule about devices failed {times} within the last hour, last at {self._container or 'a container'}: "
            f"the log has the error; such a {_OUTCOME if on_error is not OnError.REFUSE else _REFUSED}"
        )
        return Notice("devices-failed", text)
