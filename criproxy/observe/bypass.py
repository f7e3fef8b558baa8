"""The switch that makes the proxies a pure splice: by command, or when our own failures repeat."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from criproxy.errors import CriproxyError, StoreError, UsageError
from criproxy.observe.log import structlog
from criproxy.wire.calls import Call, ErrorHandler, Verdict

FAILURES = 10
"""So many failures of ours within `WINDOW_S` switch the bypass on."""
WINDOW_S = 60.0

log = structlog.get_logger("criproxy.bypass")


class Switchable(Protocol):
    """A proxy, as far as this file knows it."""

    bypass: bool


class Bypass:
    """On, every new call passes untouched: no container is placed, which is worth being loud about."""

    def __init__(self, proxies: Sequence[Switchable], changed: Callable[[str | None], None]) -> None:
        """Switch all *proxies*; tell *changed* a sentence while the bypass is on, None when it is off again."""
        self._proxies = proxies
        self._changed = changed
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self.on = False
        self.reason = ""
        self.since = ""

    def set(self, on: bool, reason: str) -> None:
        """Switch, and say so where it changes something."""
        for proxy in self._proxies:
            proxy.bypass = on
        if on == self.on:
            return
        self.on, self.reason, self.since = on, reason, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._failures.clear()
        log.warning("bypass is on: no container is placed" if on else "bypass is off", reason=reason)
        self._changed(f"BYPASS since {self.since}, no container is placed: {reason}" if on else None)

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy bypass``.

        Raises:
            UsageError: if the state that is asked for is none.
        """
        match arguments.get("state"):
            case "on" | "off" as state:
                self.set(state == "on", "asked for by criproxy bypass")
            case "status":
                pass
            case other:
                raise UsageError(f"bypass is on, off or status, not {other!r}")
        return {"bypass": self.on, "since": self.since, "reason": self.reason}

    def watch(self, on_error: ErrorHandler) -> ErrorHandler:
        """*on_error*, with the failures counted that are ours: of the store, and those nobody foresaw."""

        async def watched(call: Call, message: bytes | None, error: Exception) -> Verdict:
            if isinstance(error, StoreError) or not isinstance(error, CriproxyError):
                self._count(error)
            return await on_error(call, message, error)

        return watched

    def _count(self, error: Exception) -> None:
        now_s = time.monotonic()
        self._failures.append(now_s)
        if not self.on and len(self._failures) == FAILURES and now_s - self._failures[0] <= WINDOW_S:
            self.set(True, f"{FAILURES} failures within {WINDOW_S:.0f} s, the last one: {error}")
