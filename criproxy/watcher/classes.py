"""Watches the cards of one class: takes readings, finds the containers in them, and passes on what is judged."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from criproxy.discovery.patience import Hangs, Patience
from criproxy.observe.logger import Log
from criproxy.usage.quota import PAUSE_PERIODS, Over
from criproxy.usage.totals import ClassUse, class_use, complete, container_uses, named
from criproxy.usage.values import Reading
from criproxy.watcher.grants import Grants
from criproxy.watcher.incidents import QuotaIncidents
from criproxy.watcher.judging import ClassJudge, with_unlisted
from criproxy.watcher.processes import Processes

OWNED_S = 5.0
"""How long the kernel may take to say whose the processes of a reading are."""
RARE = 5
"""Readings after a pause, in a row, that are no accident any more, such as one restart of a program."""
Names = Mapping[str, str]
"""Ids of cards by whatever they are called, the ids among it."""


@dataclass(slots=True, repr=False)
class ClassWatch:
    """The cards of one class.

    Args:
        judge: judges who uses them.
        source: what reports their use: nvml, command, or file.
        processes: know the containers of processes.
        patience: for them.
        grants: know what containers have been given.
        incidents: get who is over a quota.
        changed: called when something else is known than before.
        log: is told once of each reason why nothing is known.
    """

    judge: ClassJudge
    source: str
    processes: Processes
    patience: Patience
    grants: Grants
    incidents: QuotaIncidents
    changed: Callable[[], None]
    log: Log
    names: Names = field(default_factory=dict)
    use: ClassUse = field(init=False)
    """What is known now."""
    _latest: Reading | None = None
    _read_s: float | None = None
    """When the last complete reading was taken."""
    _late: int = 0
    """How many in a row came after a pause."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _said: dict[str, str] = field(default_factory=dict)
    """The reasons that the log has, by card; those of all cards at once under an empty text."""

    def __post_init__(self) -> None:
        self.use = ClassUse(kind=self.judge.kind, source=self.source, problem="there has been no reading yet")

    def rest(self, problem: str) -> None:
        """Nothing reports its use: there is a *problem*, or the machine has no such cards."""
        if problem:
            self.fail(problem)
            return
        self.use = ClassUse(kind=self.judge.kind, source=self.source)
        self._tell({})

    def took(self, reading: Reading) -> None:
        """There is a reading; one that comes before the last was looked at takes its place."""
        self._latest = reading
        self._news.set()

    async def run(self) -> None:
        """Look at readings for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._latest is not None:
                try:
                    await self.see(self._latest)
                except Exception as error:
                    self.fail(f"criproxy failed: {error!r}")
                    raise

    def fail(self, problem: str) -> None:
        """Nothing is known now; what was known last stays, but for why some cards were not read then."""
        self.use = replace(self.use, problem=problem, unread={})
        self._tell({"": problem})

    async def see(self, reading: Reading) -> None:
        """Use one reading."""
        if self.source != "nvml":  # whose cards are there, even if nobody has looked at them yet
            reading = complete(reading, self.names)
        if reading.problem:
            self.use = replace(self.use, problem=reading.problem, unread=reading.unread)
            self._tell({**reading.unread, "": reading.problem})
            return
        try:
            owned = await self._owned(named(reading, self.names))
        except Hangs:  # without its seconds, so that the log has it once
            self.fail("finding the containers of the processes in /proc took too long")
            return
        if self.source == "nvml" and self.grants.granted is not None:
            owned = with_unlisted(owned, self.grants.granted)
        uses = container_uses(owned.kind, owned.processes)
        self.use = class_use(owned, self.source, uses)
        if self._is_rare(reading.at_s):
            self._rare()
        else:
            self._tell(owned.unread)
        self.grants.see(each.container_id for each in uses if each.container_id)
        if self.grants.granted is None:
            return
        verdicts, targets = self.judge.after(owned, self.grants.granted, uses)
        for verdict in verdicts:
            if isinstance(verdict, Over):
                self.incidents.over(verdict)
            else:
                self.incidents.within(verdict, owned.kind)
        for key, target in targets:
            self.incidents.finish(key, target)
        for incident, is_over in self.judge.unconfirmed(owned, self.grants.granted):
            self.incidents.confirm(incident, is_over=is_over)

    def _is_rare(self, at_s: float) -> bool:
        """Whether so much time lies between readings again and again that each of them begins anew to judge."""
        gap_s = 0.0 if self._read_s is None else at_s - self._read_s
        is_late = gap_s > PAUSE_PERIODS * self.judge.plan.period_s
        self._late, self._read_s = self._late + 1 if is_late else 0, at_s
        return self._late >= RARE

    def _rare(self) -> None:
        """The use is known, and nobody is judged by it: not in silence."""
        most_s = PAUSE_PERIODS * self.judge.plan.period_s
        self.fail(f"quotas are not checked: readings are more than {most_s:g} s (three periods of the quota) apart")

    async def _owned(self, reading: Reading) -> Reading:
        """The reading with the containers of its processes.

        Raises:
            Hangs: /proc does not say them in time.
        """
        name = f"the search of /proc for processes that use cards of {reading.kind}"
        return await self.patience.wait(name, partial(self.processes.owned, reading), OWNED_S)

    def _tell(self, problems: Mapping[str, str]) -> None:
        """Something is known, or is not: let the log have what is new."""
        self.changed()
        kind = self.judge.kind
        for card, reason in problems.items():
            if self._said.get(card) != reason:
                about = {"class": kind, "card": card} if card else {"class": kind}
                self.log.warning("usage of cards is unknown", **about, reason=reason)
        if self._said and not problems:
            self.log.info("usage of cards is known again", **{"class": kind})
        self._said = dict(problems)
