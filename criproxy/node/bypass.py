"""The bypass: switched on by a command, or automatically when failures of criproxy repeat.

When ordered, every new call passes unchanged, and exclusive CPUs are not protected. When automatic, new containers
share CPUs, without the policy, the disk or queries to the runtime; exclusive CPUs stay (docs/decisions/0005-bypass.md).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from criproxy.errors import CriproxyError, Fault, UsageError
from criproxy.process.log import structlog
from criproxy.wire.calls import Call, ErrorHandler, Verdict
from criproxy.wire.stats import Stats

FAILURES = 10
"""The number of failures within `WINDOW_S` that switches the automatic bypass on."""
WINDOW_S = 60.0
HANGS, HANG_WINDOW_S = 3, 600.0
"""The same for handlers that hang: each delays its call by a minute, and the kubelet sends one after the other."""
TRIAL_S = 120.0
"""How long after the begin of a trial one failure is enough: a handler that hangs needs a minute to fail."""
FIRST_TRY_S, LONGEST_TRY_S = 60.0, 3600.0
"""Time until criproxy tries to place containers again; it doubles each time that this fails at once."""

log = structlog.get_logger("criproxy.bypass")


class BypassMode(Enum):
    """Whether bypass is on, and whether an operator or criproxy switched it on."""

    OFF = "off"
    AUTOMATIC = "automatic"
    ORDERED = "ordered"


_SENTENCES = {
    BypassMode.OFF: "bypass is off: containers are placed",
    BypassMode.AUTOMATIC: "bypass is on: new containers share CPUs, and none gets exclusive CPUs",
    BypassMode.ORDERED: "bypass is on: every call passes, and exclusive CPUs are not protected",
}


class Switchable(Protocol):
    """The part of a proxy that this module uses."""

    stats: Stats


@dataclass(repr=False, eq=False)
class Bypass:
    """The switch of the bypass: off until an operator orders it or failures of criproxy repeat.

    Args:
        proxies: only splice while the bypass is ordered.
        switched: called at every change.
        has_problem: returns whether the cause is known to persist, so that a trial would fail.
    """

    _proxies: Sequence[Switchable]
    _switched: Callable[[BypassMode], None]
    _has_problem: Callable[[], bool] = lambda: False
    mode: BypassMode = BypassMode.OFF
    reason: str = ""
    since: str = ""
    _failures: deque[float] = field(default_factory=lambda: deque(maxlen=FAILURES))
    _hangs: deque[float] = field(default_factory=lambda: deque(maxlen=HANGS))
    _pause_s: float = FIRST_TRY_S
    _trial_until_s: float = 0.0
    """Until when one failure is enough, on the monotonic clock: a trial has just begun."""
    _timer: asyncio.TimerHandle | None = None

    @property
    def on(self) -> bool:
        """Whether the bypass is on, ordered or automatic: the policy does not place containers."""
        return self.mode is not BypassMode.OFF

    @property
    def sentence(self) -> str:
        """The meaning of the mode, in a sentence."""
        return _SENTENCES[self.mode]

    def set(self, mode: BypassMode, reason: str) -> None:
        """Switch to *mode*, and log and publish a change."""
        for proxy in self._proxies:
            proxy.stats.bypass = mode is BypassMode.ORDERED
        self._arm(mode)
        if mode is self.mode:
            return
        self.mode, self.reason, self.since = mode, reason, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._failures.clear()
        self._hangs.clear()
        again_s = {"tries_again_after_s": self._pause_s} if mode is BypassMode.AUTOMATIC else {}
        log.warning(_SENTENCES[mode], reason=reason, **again_s)
        self._switched(mode)

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy bypass``.

        Raises:
            UsageError: the requested state is invalid.
        """
        match arguments.get("state"):
            case "on" | "off" as state:
                self._pause_s, self._trial_until_s = FIRST_TRY_S, 0.0
                self.set(BypassMode.ORDERED if state == "on" else BypassMode.OFF, "requested by criproxy bypass")
            case "status":
                pass
            case other:
                raise UsageError(f"bypass is on, off or status, not {other!r}")
        return self.to_json()

    def to_json(self) -> dict[str, Any]:
        """As in the answer of ``criproxy bypass``."""
        return {"bypass": self.on, "mode": self.mode.value, "since": self.since, "reason": self.reason}

    def watch(self, on_error: ErrorHandler) -> ErrorHandler:
        """Return *on_error* with failures of criproxy counted: faults and unexpected errors."""

        async def watched(call: Call, message: bytes | None, error: Exception) -> Verdict:
            try:
                return await on_error(call, message, error)
            finally:  # even if the fallback fails
                if isinstance(error, Fault) or not isinstance(error, CriproxyError):
                    self._count(error)

        return watched

    def close(self) -> None:
        """Cancel the next trial."""
        self._arm(BypassMode.OFF)

    def _count(self, error: Exception) -> None:
        now_s = time.monotonic()
        hung = isinstance(error, Fault) and error.hung
        several, window_s = (self._hangs, HANG_WINDOW_S) if hung else (self._failures, WINDOW_S)
        several.append(now_s)
        if self.on:
            return
        if now_s < self._trial_until_s:
            self._pause_s = min(self._pause_s * 2, LONGEST_TRY_S)
            self.set(BypassMode.AUTOMATIC, f"it still fails: {error}")
        elif len(several) == several.maxlen and now_s - several[0] <= window_s:
            self._pause_s = FIRST_TRY_S
            self.set(BypassMode.AUTOMATIC, f"{len(several)} failures within {window_s:.0f} s, the last one: {error}")

    def _arm(self, mode: BypassMode) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if mode is BypassMode.AUTOMATIC:
            self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._try)

    def _try(self) -> None:
        if self._has_problem():
            self._arm(self.mode)
            return
        self._trial_until_s = time.monotonic() + TRIAL_S
        self.set(BypassMode.OFF, "trying again")
