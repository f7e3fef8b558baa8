"""What failed in criproxy itself within the last hour: counted, and told in `status` and `status --check`.

Whatever only tells of what happens (log, history, metrics, recordings, explanations) may fail without consequences: it
is counted here, and what happens goes on.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType

from criproxy.control.settings import Log
from criproxy.views.notices import Notice, timestamp

KEPT_S = 3600.0
"""So long a failure is told."""
MAX_KEPT = 100
"""Different failures that are remembered; of more the oldest are only counted."""
MAX_NOTICES = 10
"""Of these, the newest that one answer names."""
MAX_TEXT = 500
"""Characters of one sentence."""
KINDS = ("call", "watcher", "background", "policy", "telling", "row")
"""A handler of a call, a task that never ends, one that does, a policy, whatever tells of what happens, and state that
cannot be written for its value."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One that may have come several times."""

    kind: str
    """Of `KINDS`."""
    text: str
    """One sentence: where, about whom, and why."""
    times: int
    at_s: float
    """The last time, in seconds since the epoch."""

    def notice(self) -> Notice:
        """As `status` tells it."""
        times = f"{self.times} times, last at" if self.times > 1 else "at"
        return Notice("failure", f"{self.text} ({times} {timestamp(self.at_s)})")


class Failures:
    """The failures of one controller; for the event loop's thread, but for `notices`.

    Args:
        clock: seconds since the epoch.
        log: told why something could not be told, where that is news.
    """

    def __init__(self, clock: Callable[[], float] = time.time, log: Log | None = None) -> None:
        self.counts: Counter[str] = Counter()
        """Since the start, by kind."""
        self._clock = clock
        self._log = log
        self._kept: dict[tuple[str, str], Failure] = {}
        """In the order in which they came last."""

    def add(self, kind: str, text: str) -> bool:
        """Remember one that happens now; whether it is news: none of the last hour says the same."""
        self.counts[kind] += 1
        text, now_s = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…", self._clock()
        before = self._kept.pop((kind, text), None)
        known = before is not None and before.at_s > now_s - KEPT_S
        failure = Failure(kind, text, 1, now_s)
        self._kept[kind, text] = replace(failure, times=before.times + 1) if before and known else failure
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return not known

    def recent(self) -> list[Failure]:
        """Those of the last hour, the newest first."""
        since_s = self._clock() - KEPT_S
        return [failure for failure in reversed(list(self._kept.values())) if failure.at_s > since_s]

    def notices(self) -> Iterator[Notice]:
        """What `status` and its ``--check`` tell of them: the newest, and how many more there are."""
        recent = self.recent()
        yield from (failure.notice() for failure in recent[:MAX_NOTICES])
        if (more := len(recent) - MAX_NOTICES) > 0:
            yield Notice("failure", f"{more} more failures of criproxy within the last hour: see its log")

    def harmless(self, what: str) -> "Harmless":
        """A block that only tells of something: what is raised in it is remembered, and ends the block alone."""
        return Harmless(self, what)

    def telling_failed(self, error: Exception, what: str = "an entry of the history") -> None:
        """Remember that *what* could not be told, and log it where the log is not what fails."""
        if self.add("telling", f"{what} could not be told: {error!r}") and self._log is not None:
            with suppress(Exception):
                self._log.error("what happened stands, but could not be told", what=what, exc_info=error)


class Harmless:
    """See `Failures.harmless`."""

    __slots__ = ("_failures", "_what")

    def __init__(self, failures: Failures, what: str) -> None:
        self._failures = failures
        self._what = what

    def __enter__(self) -> None:
        """Nothing: only the end matters."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Swallow an exception; what ends a task passes."""
        if not isinstance(error, Exception):
            return False
        self._failures.telling_failed(error, self._what)
        return True


class SafeLog:
    """Passes lines to another log; one that it cannot take is counted.

    Args:
        log: gets the lines.
        failures: told of those that are lost.
    """

    def __init__(self, log: Log, failures: Failures) -> None:
        self._log = log
        self._failures = failures

    def info(self, event: str, **keys: object) -> None:
        """Something that users want to see happen."""
        with self._failures.harmless("a log line"):
            self._log.info(event, **keys)

    def warning(self, event: str, **keys: object) -> None:
        """Something that people should look at when it repeats."""
        with self._failures.harmless("a log line"):
            self._log.warning(event, **keys)

    def error(self, event: str, **keys: object) -> None:
        """Something that failed."""
        with self._failures.harmless("a log line"):
            self._log.error(event, **keys)
