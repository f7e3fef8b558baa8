"""Finds the containers of one class that are over their quota, with a `Judgement` for each card.

A card whose use is unknown does not prevent the judgement of the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.usage.grants_client import Granted, OpenIncident
from criproxy.deviceplugin.usage.quota_judgement import Judgement
from criproxy.deviceplugin.usage.quota_verdicts import Key, Verdict, Within
from criproxy.devices.plugin.plan import QuotaPlan
from criproxy.devices.usage.values import ContainerUse, ProcessUse, Reading

UNLISTED = "it is not one of the existing cards"


@dataclass(slots=True, repr=False)
class ClassJudge:
    """The judgement of one class.

    Args:
        kind: the name of the class.
        plan: defines when a container is over its quota.
    """

    kind: str
    plan: QuotaPlan
    _cards: dict[str, Judgement] = field(default_factory=dict)
    _targets: dict[Key, OpenIncident] = field(default_factory=dict)
    """The incidents for which a process was to be killed before a restart, until it is known whether their containers
    are still over their quotas."""
    _resumed: bool = False
    _answered: Granted | None = None
    """The answer of the daemon of which it was told what it waits for."""
    _ended: bool = False
    _gone: frozenset[int] = frozenset()
    """The PIDs of the processes in the last reading that had exited."""

    def use(self, plan: QuotaPlan) -> None:
        """Apply another plan from now on."""
        self.plan = plan
        self._cards = {card: each.with_plan(plan) for card, each in self._cards.items()}

    def end(self) -> list[Within]:
        """Stop judging; return all incidents as ended, since nothing would report their ends later."""
        self._ended, cards, self._cards = True, self._cards, {}
        return [Within(key) for each in cards.values() for key in each.incidents()]

    def after(
        self, reading: Reading, granted: Granted, uses: Iterable[ContainerUse]
    ) -> tuple[list[Verdict], list[OpenIncident]]:
        """Judge a complete reading.

        Args:
            reading: the reading, with the containers of its processes.
            granted: the grants of all containers.
            uses: what each container uses of each card.

        Returns:
            The verdicts that are new, and the incidents from before a restart whose processes are still to be killed.
        """
        if self._ended:
            return [], []
        if not self._resumed:
            self._resume(granted)
        by_card: dict[str, list[ContainerUse]] = {}
        for use in uses:
            by_card.setdefault(use.card, []).append(use)
        limits = granted.limits.get(self.kind, {})
        lost, verdicts = self._lost(reading), list[Verdict]()
        for card in dict.fromkeys((*self._cards, *limits)):  # of containers, now or at the last reading
            if card not in reading.unread:
                of_card, used, sampled_s = limits.get(card, ()), by_card.get(card, ()), reading.sampled_s.get(card)
                judgement, found = self._card(card).after(reading.at_s, of_card, used, lost.get(card, ()), sampled_s)
                verdicts += found
                if card in limits:
                    self._cards[card] = judgement
                else:
                    self._cards.pop(card, None)
        return verdicts, list(self._finished(verdicts))

    def _lost(self, reading: Reading) -> Mapping[str, list[ProcessUse]]:
        """Return, by card, the use of processes that have exited since the reading.

        This leaves out processes that had exited before: a driver may report those for ever.
        """
        gone = [each for each in reading.processes if not each.process.start_ticks]
        found: dict[str, list[ProcessUse]] = {}
        for each in gone:
            if each.process.pid not in self._gone:
                found.setdefault(each.card, []).append(each)
        self._gone = frozenset(each.process.pid for each in gone)
        return found

    def _card(self, card: str) -> Judgement:
        return self._cards.get(card) or Judgement(kind=self.kind, plan=self.plan)

    def _resume(self, granted: Granted) -> None:
        """Continue the incidents that the daemon has stored from before a restart of the watcher."""
        self._resumed = True
        for each in granted.incidents:
            if each.device_class == self.kind:
                self._cards[each.card] = self._card(each.card).resumed(each.key, each.done)
                if each.target is not None:
                    self._targets[each.key] = each

    def unconfirmed(self, reading: Reading, granted: Granted) -> list[tuple[OpenIncident, bool]]:
        """What the daemon is to be told after its restart, once for each answer: incidents, and who is over still."""
        if granted is self._answered or self._ended:
            return []
        self._answered = granted
        waiting = (each for each in granted.incidents if each.waits and each.device_class == self.kind)
        return [
            (each, each.key in self._card(each.card).incidents()) for each in waiting if each.card not in reading.unread
        ]

    def _finished(self, verdicts: Iterable[Verdict]) -> Iterator[OpenIncident]:
        for each in verdicts:
            if isinstance(each, Within):
                self._targets.pop(each.key, None)
        for key in [*self._targets]:
            if key in self._card(key.card).over_since():
                yield self._targets.pop(key)


def with_unlisted(reading: Reading, granted: Granted) -> Reading:
    """Return a *reading* that should list all cards, with the granted cards that it lacks as unread."""
    listed = {each.card for each in reading.cards}
    lacking = sorted(granted.limits.get(reading.kind, {}).keys() - listed)
    return replace(reading, unread={**dict.fromkeys(lacking, UNLISTED), **reading.unread})
