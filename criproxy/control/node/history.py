"""The history that `criproxy explain` shows: its records, made of the engine's entries, and the last refusals."""

import time
from collections.abc import Callable, Collection, Mapping

from criproxy.engine.history import Entry
from criproxy.model.bounded import bounded_text, bounded_texts
from criproxy.model.notices import Refusal
from criproxy.model.record import Fact, Kind, Record
from criproxy.model.workload import Container

REFUSAL_S = 3600.0
"""The kubelet repeats what was refused: one that it has not repeated for so long is no longer wanted."""
MAX_REFUSALS = 100


class History:
    """Makes records of entries, and remembers the last refusals; for the event loop's thread.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._refusals: dict[str, Refusal] = {}
        """By name, in the order in which they were heard of last."""

    def refusals(self) -> list[Refusal]:
        """The containers that were refused within the last `REFUSAL_S` and not placed since, the newest first."""
        since_s = self._clock() - REFUSAL_S
        return [refusal for refusal in reversed(self._refusals.values()) if refusal.at_s > since_s]

    def refused_in(self) -> frozenset[str]:
        """The sandboxes of the containers that were refused."""
        return frozenset(refusal.sandbox for refusal in self._refusals.values())

    def forget_refused(self, sandboxes: Collection[str]) -> None:
        """Drop the refusals of containers in these *sandboxes*, which are gone."""
        for title in [title for title, refusal in self._refusals.items() if refusal.sandbox in sandboxes]:
            del self._refusals[title]

    def record(self, entry: Entry) -> Record:
        """*entry* as it is written."""
        about = entry.about
        if about and entry.kind in (Kind.REFUSED, Kind.GRANTED):
            self._remember(about, entry)
        sentences, facts = bounded_texts(entry.sentences), _bounded_facts(entry.facts)
        if about is None:
            return Record(entry.at_s, "", "", entry.kind, sentences, "", facts)
        return Record(entry.at_s, about.key, about.title, entry.kind, sentences, about.life, facts)

    def _remember(self, about: Container, entry: Entry) -> None:
        title = about.title
        before = self._refusals.pop(title, None)
        if entry.kind is Kind.REFUSED:
            times = before.times + 1 if before else 1
            text = bounded_text(" ".join(bounded_texts(entry.sentences)))
            self._refusals[title] = Refusal(title, text, times, self._clock(), about.pod)
        if len(self._refusals) > MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]


def _bounded_facts(facts: Mapping[str, Fact]) -> Mapping[str, Fact]:
    """*facts*, of which some have texts that tenants wrote, each cut."""
    return {key: bounded_text(fact) if isinstance(fact, str) else fact for key, fact in facts.items()}
