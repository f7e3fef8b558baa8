"""What the daemon knows about the device plugin: its last report, whether it runs, and what a restart remembers.

The watcher, which is a part of it, reports the use of cards.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic, time

from criproxy.devices.plugin.published import Published
from criproxy.devices.usage.reports import UsageHistory, stale_after_s
from criproxy.devices.usage.values import ClassUse, UsageReport
from criproxy.model.text.plain import from_plain
from criproxy.process.tasks import wait_at_most
from criproxy.store.files import read_json, write_whole

NAME = "device-plugin.json"
MAX_BYTES = 1 << 20

NEVER_S = 300.0
"""How long the first command of a device plugin may take after the start of the daemon, as while the node boots."""
REFUSED_S = 600.0
"""How long a refusal counts: while something starts the device plugin, it repeats the refusal. systemd starts it again
after a second (``RestartSec=``), and the kubelet after 5 minutes at most (CrashLoopBackOff)."""
REMEMBERED_S = 3600.0
"""For how long a restarted daemon expects a device plugin that ran before: one that was removed says nothing."""
RETRY_S = 10.0
"""Pause before a failed write is retried."""
BEGINS_S = 10.0
"""What reports use may need so long until its first reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a restart of the daemon must not forget, since the device plugin may not be there to say it again."""

    runs: bool = False
    """Whether a device plugin has begun or reported, and nobody has ended it."""
    refused: str = ""
    """Why it has not started."""
    refused_s: float = 0.0
    """When it said so last, in seconds since the epoch."""


@dataclass(slots=True)
class DevicePlugin:
    """The last report. It is lost when the daemon restarts, and the device plugin soon sends another one."""

    clock: Callable[[], float] = monotonic
    report: Published | None = None
    """The last report; None if there was none since the daemon's start, or since the device plugin was stopped."""
    reported_s: float = 0.0
    """When the last one arrived, in seconds since the epoch; 0: there was none."""
    started: bool = False
    """Whether it has said that it begins, and not yet that it ends, or that it refuses its files."""
    _refused: str = ""
    _refused_by: str = ""
    _refused_s: float = float("-inf")
    """When it last did."""
    has_ended: bool = False
    """Whether somebody has ended it, and it has not begun again."""
    _at_s: float = 0.0
    _began_s: float = 0.0
    _seen_s: float = field(init=False)
    _remembered: bool = False
    """Whether `started` is what a former daemon knew."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._seen_s = self.clock()

    def note_command(self) -> None:
        """Record that the device plugin has sent a command; `remember` writes what that has changed."""
        self._seen_s = self.clock()
        self._news.set()

    @property
    def silent_s(self) -> float:
        """Seconds since its last command, or since the start of the daemon."""
        return self.clock() - self._seen_s

    def heeds(self, instance: str, *, serves: bool = False) -> bool:
        """Whether reports of the run *instance* count: not those of one that serves nothing while another one runs.

        Args:
            instance: see `Published.instance`.
            serves: whether the kubelet has accepted any of its resources; then it replaces the one before it.
        """
        return serves or self.report is None or not self.runs or self.report.instance == instance

    @property
    def refused(self) -> str:
        """Why it has not started, as a sentence about its files.

        Empty once it has reported, was told to end, or has not repeated that for so long that nothing starts it.
        """
        return self._refused if self.clock() - self._refused_s <= REFUSED_S else ""

    @property
    def is_due(self) -> bool:
        """Whether it has begun, so that a report should come; what a former daemon knew counts for an hour."""
        return self.started and not (self._remembered and self.silent_s > REMEMBERED_S)

    @property
    def expected(self) -> Expected:
        """What a restart must not forget."""
        refused_s = time() - (self.clock() - self._refused_s) if self.refused else 0.0
        minute_s = refused_s // 60 * 60  # systemd starts it every second: not a write each time
        return Expected(runs=self.runs or self.has_stopped or self.is_due, refused=self.refused, refused_s=minute_s)

    def restore(self, known: Expected) -> None:
        """Go on with what a former daemon knew."""
        self.started = self._remembered = known.runs
        if known.refused:
            self._refused, self._refused_s = known.refused, self.clock() - max(0.0, time() - known.refused_s)

    async def remember(self, state_dir: Path) -> None:
        """Write what a restart must not forget, whenever it has changed, for ever; a disk that fails is tried again."""
        written: Expected | None = None
        while True:
            self._news.clear()
            if (now := self.expected) != written:
                try:
                    await asyncio.to_thread(write_whole, state_dir, NAME, json.dumps(asdict(now)))
                except OSError:  # status reports a state directory that cannot be written
                    await asyncio.sleep(RETRY_S)
                    continue
                written = now
            await wait_at_most(REMEMBERED_S if self._remembered else None, self._news.wait())

    @property
    def has_stopped(self) -> bool:
        """Whether its reports have ended, but nobody has ended it, and it has not refused its files since."""
        return self.report is not None and not self.runs and self._at_s > self._refused_s

    @property
    def should_run(self) -> bool:
        """Whether it has begun or reported, and nobody has ended or given it up."""
        return self.runs or self.has_stopped or self.is_due or bool(self.refused)

    @property
    def is_missing(self) -> bool:
        """Whether none has been there since the daemon's start, or a refusal, for as long as that may take."""
        return not self.runs and not self.has_stopped and not self.has_ended and self.silent_s > NEVER_S

    def begin(self, instance: str = "", refused: str = "") -> None:
        """Record that *instance* begins: a report should follow, unless it has *refused* its files, for that reason."""
        if refused:
            self.started, self._refused, self._refused_by, self._refused_s = False, refused, instance, self.clock()
        elif not instance or instance != self._refused_by:
            self.started = True
        self.has_ended = self._remembered = False
        self.note_command()

    def end(self, instance: str = "") -> None:
        """Record that *instance* ends because somebody wants that: nothing that it reported is true any more."""
        if not self.heeds(instance):
            return
        self.started, self.report, self._refused, self.has_ended = False, None, "", True
        self.note_command()

    def publish(self, report: Published) -> bool:
        """Replace the last report with *report*, if it counts; return whether it does."""
        if not self.heeds(report.instance, serves=report.serves):
            return False
        if not self.runs:
            self._began_s = self.clock()
        self.report, self.reported_s, self._at_s = report, time(), self.clock()
        self._refused, self.has_ended, self._remembered = "", False, False
        self.note_command()
        return True

    def ids(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return how many ids are healthy and unhealthy, by class and resource; empty if no device plugin runs."""
        resources = self.report.resources if self.report and self.runs else ()
        return {(each.device_class, each.name): (each.healthy, each.ids - each.healthy) for each in resources}

    @property
    def runs_s(self) -> float:
        """For how long it has been running, if it runs."""
        return self.clock() - self._began_s

    @property
    def runs(self) -> bool:
        """Whether its last report is recent."""
        return self.report is not None and self.clock() - self._at_s <= self.report.stale_after_s


def read_expected(state_dir: Path) -> Expected:
    """Return what a former daemon knew; nothing if the file is missing or unreadable. Blocks."""
    try:
        return from_plain(Expected, read_json(state_dir, NAME, MAX_BYTES))
    except ValueError:
        return Expected()


@dataclass(slots=True, repr=False)
class CardUsage:
    """The watcher's last report, and the history of the last hour.

    They are lost when the daemon restarts, and the watcher soon sends another report.
    """

    clock: Callable[[], float] = monotonic
    report: UsageReport | None = None
    """The last report; None if there was none since the daemon's start."""
    reported_s: float = 0.0
    """When it arrived, in seconds since the epoch."""
    history: UsageHistory = field(default_factory=UsageHistory)
    _unknown: dict[tuple[str, str], float] = field(default_factory=dict)
    """By class and card whose use is unknown, since when, on the clock; an empty card is for the whole class."""
    _at_s: float = field(init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._at_s = self.clock()

    def publish(self, report: UsageReport) -> None:
        """Replace the last report with *report*."""
        self.report, self.reported_s, self._at_s = report, time(), self.clock()
        self.history.add(self.reported_s, report)
        unknown = [(each.kind, "") for each in report.classes if each.problem]
        unknown += [(each.kind, card) for each in report.classes for card in each.unread]
        self._unknown = {key: self._unknown.get(key, self._at_s) for key in unknown}
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next report."""
        await self._news.wait()

    def unknown(self) -> dict[str, str]:
        """By class, why its use is not known, where that has been so for longer than a source takes to begin."""
        return {each.kind: each.problem for each in self._classes() if each.problem and self._lasts(each.kind)}

    def unread(self) -> dict[tuple[str, str], str]:
        """By class and card, why the use of a single card has not been known for as long."""
        read = [each for each in self._classes() if not each.problem]
        found = {(each.kind, card): reason for each in read for card, reason in each.unread.items()}
        return {key: reason for key, reason in found.items() if self._lasts(*key)}

    def _classes(self) -> tuple[ClassUse, ...]:
        return self.current.classes if self.current else ()

    def _lasts(self, kind: str, card: str = "") -> bool:
        return self.clock() - self._unknown[kind, card] > BEGINS_S

    @property
    def silent_s(self) -> float:
        """How long there has been no report: since the start of the daemon, if there never was one."""
        return self.clock() - self._at_s

    @property
    def is_current(self) -> bool:
        """Whether the last report is recent."""
        return self.report is not None and self.silent_s <= stale_after_s(self.report)

    @property
    def current(self) -> UsageReport | None:
        """The last report, or None if it is not recent."""
        return self.report if self.is_current else None
