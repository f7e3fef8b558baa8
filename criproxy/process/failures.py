"""Failures of criproxy itself within the last hour: counted, and shown in `status` and `status --check`.

Code that only reports (log, history, metrics, recordings, explanations) may fail without consequences: the failure is
counted here, and the reported operation continues.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.model.text.bounded import in_turn
from criproxy.model.text.notices import Notice, timestamp
from criproxy.process.logger import Log

KEPT_S = 3600.0
"""How long a failure is shown."""
MAX_KEPT = 100
"""Different failures that are remembered; if there are more, some of them are only counted."""
MAX_COUNTED = 10_000
"""How many are only counted, so that each counts once."""
MAX_NOTICES = 10
"""How many of them one answer contains."""
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
    namespace: str = ""
    """The namespace of the container or pod, if there is one: tenants may make their own calls fail."""

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
    _counted: dict[int, tuple[int, float]] = field(default_factory=dict)
    """How often, and when last, those happened that are only counted; by the hash of their key."""

    def add(self, kind: str, text: str, same_as: str = "", namespace: str = "") -> bool:
        """Remember a failure that happens now, and return whether it is new: not the same as one of the last hour.

        Args:
            kind: one of `KINDS`.
            text: one sentence; cut at `MAX_TEXT`.
            same_as: identifies failures that count as the same one, with the newest text; empty: the text does.
            namespace: that of the container or pod, if there is one.
        """
        self.counts[kind] += 1
        text, now_s = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…", self.clock()
        key = kind, same_as or text
        kept, counted = self._kept.pop(key, None), self._counted.pop(hash(key), (0, 0.0))
        times, at_s = (kept.times, kept.at_s) if kept else counted
        times = times if at_s > now_s - KEPT_S else 0
        self._kept[key] = Failure(kind, text, times + 1, now_s, namespace)
        if len(self._kept) > MAX_KEPT:
            self._only_count()
        return not times

    def recent(self) -> list[Failure]:
        """Return the failures of the last hour, the newest first."""
        since_s = self.clock() - KEPT_S
        return [failure for failure in reversed(list(self._kept.values())) if failure.at_s > since_s]

    def notices(self) -> Iterator[Notice]:
        """Yield notices for `status` and its ``--check``: the newest of each kind first, and how many more there are.

        Within a kind, the newest of each namespace are first, so that none hides those of others.
        """
        recent, since_s = self.recent(), self.clock() - KEPT_S
        of_kind = in_turn(in_turn(recent, lambda one: (one.kind, one.namespace)), lambda one: one.kind)
        yield from (failure.notice() for failure in of_kind[:MAX_NOTICES])
        counted = sum(at_s > since_s for _, at_s in list(self._counted.values()))
        if (more := len(recent) + counted - MAX_NOTICES) > 0:
            yield Notice("failure", f"{more} more failures of criproxy within the last hour: see its log")

    def _only_count(self) -> None:
        """Only count one failure from now on: the oldest of the namespace with the most, in the kind with the most."""
        kept, since_s = list(self._kept.items()), self.clock() - KEPT_S
        of_kinds = Counter(one.kind for _, one in kept)
        of_namespaces = Counter((one.kind, one.namespace) for _, one in kept)

        def crowd(item: tuple[tuple[str, str], Failure]) -> tuple[bool, int, int]:
            one = item[1]
            return one.at_s <= since_s, of_kinds[one.kind], of_namespaces[one.kind, one.namespace]

        key, failure = max(kept, key=crowd)
        del self._kept[key]
        if failure.at_s > since_s:
            self._counted[hash(key)] = failure.times, failure.at_s
        if len(self._counted) > MAX_COUNTED:
            del self._counted[next(iter(self._counted))]

    def harmless(self, what: str) -> "_Harmless":
        """Run a block that only reports something: remember an exception in it, which ends only the block."""
        return _Harmless(self, what)

    def not_reported(self, what: str, error: Exception) -> None:
        """Remember that *what* could not be reported, and log that if it is new."""
        if self.add("telling", f"{what} could not be reported: {error!r}") and self.log is not None:
            text = "a change has taken effect, but could not be reported"
            with suppress(Exception):
                self.log.error(text, what=what, exc_info=error)


@dataclass(slots=True, repr=False, eq=False)
class _Harmless:
    """The context of `Failures.harmless`: each call of the kubelet enters ten of them, a generator would cost more."""

    failures: Failures
    what: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):  # what ends a task passes
            return False
        self.failures.not_reported(self.what, error)
        return True


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
