"""Failures of criproxy itself within the last hour: counted, and shown in `status` and `status --check`.

Code that only reports (log, history, metrics, recordings, explanations) may fail without consequences: the failure is
counted here, and the reported operation continues.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from criproxy.model.notices import Notice, timestamp
from criproxy.observe.logger import Log

KEPT_S = 3600.0
"""How long a failure is shown."""
MAX_KEPT = 100
"""Different failures that are remembered; if there are more, the oldest are only counted."""
MAX_NOTICES = 10
"""How many of them, the newest, one answer contains."""
MAX_TEXT = 500
"""Characters of one sentence."""
KINDS = ("call", "watcher", "background", "policy", "telling", "row", "devices")
"""A handler of a call, a task that never ends, one that does, a policy, code that only reports, state whose values
cannot be written, and the device rules."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure, which may have happened several times."""

    kind: str
    """One of `KINDS`."""
    text: str
    """One sentence: the place, the container, and the reason."""
    times: int
    at_s: float
    """When it last happened, in seconds since the epoch."""

    def notice(self) -> Notice:
        """Return the notice for `status`."""
        times = f"{self.times} times, last at" if self.times > 1 else "at"
        text = f"{self.text} ({times} {timestamp(self.at_s)})"
        return Notice("devices-failed", text) if self.kind == "devices" else Notice("failure", text)


@dataclass(slots=True, repr=False)
class Failures:
    """The failures of one controller. Use only in the event loop's thread, except `notices`."""

    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    log: Log | None = None
    """Receives new failures of code that only reports."""
    counts: Counter[str] = field(default_factory=Counter)
    """Counts since the start, by kind."""
    _kept: dict[tuple[str, str], Failure] = field(default_factory=dict)
    """In the order in which they last happened."""

    def add(self, kind: str, text: str, same_as: str = "") -> bool:
        """Remember a failure that happens now, and return whether it is new: not the same as one of the last hour.

        Args:
            kind: one of `KINDS`.
            text: one sentence; cut at `MAX_TEXT`.
            same_as: identifies failures that count as the same one, with the newest text; empty: the text does.
        """
        self.counts[kind] += 1
        text, now_s = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…", self.clock()
        before = self._kept.pop(key := (kind, same_as or text), None)
        times = before.times if before and before.at_s > now_s - KEPT_S else 0
        self._kept[key] = Failure(kind, text, times + 1, now_s)
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return not times

    def recent(self) -> list[Failure]:
        """Return the failures of the last hour, the newest first."""
        since_s = self.clock() - KEPT_S
        return [failure for failure in reversed(list(self._kept.values())) if failure.at_s > since_s]

    def notices(self) -> Iterator[Notice]:
        """Yield notices for `status` and its ``--check``: the newest failures, and how many more there are."""
        recent = self.recent()
        yield from (failure.notice() for failure in recent[:MAX_NOTICES])
        if (more := len(recent) - MAX_NOTICES) > 0:
            yield Notice("failure", f"{more} more failures of criproxy within the last hour: see its log")

    @contextmanager
    def harmless(self, what: str) -> Iterator[None]:
        """Run a block that only reports something: remember an exception in it, which ends only the block."""
        try:
            yield
        except Exception as error:  # what ends a task passes
            if self.add("telling", f"{what} could not be reported: {error!r}") and self.log is not None:
                text = "a change has taken effect, but could not be reported"
                with suppress(Exception):
                    self.log.error(text, what=what, exc_info=error)  # noqa: TRY400 (a `Log` has no more)


@dataclass(frozen=True, slots=True, repr=False)
class SafeLog:
    """Passes lines to another log; one that it cannot take is counted among *failures*."""

    _log: Log
    _failures: Failures

    def info(self, event: str, **keys: object) -> None:
        """Something that users want to see happen."""
        with self._failures.harmless("a log line"):
            self._log.info(event, **keys)

    def warning(self, event: str, **keys: object) -> None:
        """Something that needs attention when it repeats."""
        with self._failures.harmless("a log line"):
            self._log.warning(event, **keys)

    def error(self, event: str, **keys: object) -> None:
        """Something that failed."""
        with self._failures.harmless("a log line"):
            self._log.error(event, **keys)
