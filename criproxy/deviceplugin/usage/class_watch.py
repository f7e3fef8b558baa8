"""Watches the cards of one class: finds the containers of the processes in readings, and reports quota incidents."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from criproxy.deviceplugin.usage.class_judge import ClassJudge, with_unlisted
from criproxy.deviceplugin.usage.grants_client import Grants
from criproxy.deviceplugin.usage.processes import Processes
from criproxy.deviceplugin.usage.quota_incidents import QuotaIncidents
from criproxy.deviceplugin.usage.quota_judgement import PAUSE_PERIODS
from criproxy.deviceplugin.usage.quota_verdicts import Over
from criproxy.devices.usage import values
from criproxy.devices.usage.values import ClassUse, Reading
from criproxy.host.patience import Hangs, Patience
from criproxy.process.logger import Log

SEARCH_TIMEOUT_S = 5.0
"""How long /proc may take to show the containers of the processes of a reading."""
RARE = 5
"""After so many late readings in a row, readings are too rare; a single restart of a program causes fewer."""
Names = Mapping[str, str]
"""The ids of cards by all their names, of which the id is one."""


@dataclass(slots=True, repr=False)
class ClassWatch:
    """The cards of one class.

    Args:
        judge: finds the containers that are over their quota.
        source: what reports the use of the cards: nvml, command, or file.
        processes: finds the containers of processes.
        patience: limits the time that this takes.
        grants: the cards that containers have.
        incidents: gets the containers that are over a quota, or within it again.
        changed: called when the use may have changed.
        log: gets each reason why the use is unknown once.
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
    """What the containers use, according to the last reading."""
    _latest: Reading | None = None
    _read_s: float | None = None
    """When the last complete reading was taken."""
    _late: int = 0
    """How many readings in a row came after a pause."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _unknown_keys: tuple[str, ...] = ()
    """The unknown keys that were logged last."""
    _logged: dict[str, str] = field(default_factory=dict)
    """The reasons that were logged, by card; a reason for all cards has the empty key."""

    def __post_init__(self) -> None:
        self.use = ClassUse(kind=self.judge.kind, source=self.source, problem="there has been no reading yet")

    def idle(self, problem: str) -> None:
        """Note that nothing reports the use, because of a *problem* or, without one, because there are no cards."""
        if problem:
            self.fail(problem)
            return
        self.use = ClassUse(kind=self.judge.kind, source=self.source)
        self._publish({})

    def take(self, reading: Reading) -> None:
        """Accept a reading; it replaces one that has not been processed yet."""
        self._latest = reading
        self._arrived.set()

    async def run(self) -> None:
        """Process the readings."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._latest is not None:
                try:
                    await self.process(self._latest)
                except Exception as error:
                    self.fail(f"criproxy failed: {error!r}")
                    raise

    def fail(self, problem: str) -> None:
        """Note that the use is unknown; the last known use stays, but not why some cards were unread then."""
        self.use = replace(self.use, problem=problem, unread={})
        self._publish({"": problem})

    async def process(self, reading: Reading) -> None:
        """Process one reading: update the use, and report what the judge finds."""
        self._log_unknown(reading.unknown_keys)
        if self.source != "nvml":  # NVML lists its cards itself, also before the first inventory
            reading = values.with_unknown_cards(reading, self.names)
        if reading.problem:
            self.use = replace(self.use, problem=reading.problem, unread=reading.unread)
            self._publish({**reading.unread, "": reading.problem})
            return
        try:
            located = await self._with_containers(values.with_card_ids(reading, self.names))
        except Hangs:  # without its seconds, so that the log has it once
            self.fail("finding the containers of the processes in /proc took too long")
            return
        if self.source == "nvml" and self.grants.granted is not None:
            located = with_unlisted(located, self.grants.granted)
        uses = values.container_uses(located.kind, located.processes)
        self.use = values.class_use(located, self.source, uses)
        if self._is_too_rare(reading.at_s):
            most_s = PAUSE_PERIODS * self.judge.plan.period_s
            self.fail(f"quotas are not checked: readings are more than {most_s:g} s (three periods of the quota) apart")
        else:
            self._publish(located.unread)
        self.grants.require(each.container_id for each in uses if each.container_id)
        if self.grants.granted is None:
            return
        verdicts, targets = self.judge.after(located, self.grants.granted, uses)
        for verdict in verdicts:
            if isinstance(verdict, Over):
                self.incidents.over(verdict)
            else:
                self.incidents.within(verdict, located.kind)
        for target in targets:
            self.incidents.finish(target)
        for incident, is_over in self.judge.unconfirmed(located, self.grants.granted):
            self.incidents.confirm(incident, is_over=is_over)

    def _is_too_rare(self, at_s: float) -> bool:
        """Whether the readings come so far apart, again and again, that the judge starts anew with each of them."""
        gap_s = 0.0 if self._read_s is None else at_s - self._read_s
        is_late = gap_s > PAUSE_PERIODS * self.judge.plan.period_s
        self._late, self._read_s = self._late + 1 if is_late else 0, at_s
        return self._late >= RARE

    async def _with_containers(self, reading: Reading) -> Reading:
        """Return the reading with the containers of its processes.

        Raises:
            Hangs: /proc does not show them in time.
        """
        known = self.processes.with_known(reading)
        if known is not None:
            return known
        name = f"the search of /proc for processes that use cards of {reading.kind}"
        return await self.patience.wait(name, partial(self.processes.with_containers, reading), SEARCH_TIMEOUT_S)

    def _log_unknown(self, keys: tuple[str, ...]) -> None:
        """Log the keys that criproxy does not know, once."""
        if keys and keys != self._unknown_keys:
            self._unknown_keys = keys
            text = "readings have unknown keys, which criproxy ignores"
            self.log.warning(text, **{"class": self.judge.kind}, keys=", ".join(keys))

    def _publish(self, problems: Mapping[str, str]) -> None:
        """Announce the changed use, and log the problems that are new, by card."""
        self.changed()
        kind = self.judge.kind
        for card, reason in problems.items():
            if self._logged.get(card) != reason:
                keys = {"class": kind, "card": card} if card else {"class": kind}
                self.log.warning("usage of cards is unknown", **keys, reason=reason)
        if self._logged and not problems:
            self.log.info("usage of cards is known again", **{"class": kind})
        self._logged = dict(problems)
