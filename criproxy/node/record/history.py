"""The history that `criproxy explain` shows: its records, made of the engine's entries."""

from collections.abc import Mapping

from criproxy.model.record import Fact, Kind, Record
from criproxy.model.text.bounded import bounded_text, bounded_texts
from criproxy.node.record.refusals import Refusals
from criproxy.placement.records.history import Entry


class History:
    """Convert entries to records, and pass refused containers to *refusals*. Use only in the event loop's thread."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def record(self, entry: Entry) -> Record:
        """Return the record of *entry* that goes to the store."""
        about = entry.about
        if about and entry.kind is Kind.REFUSED:
            self._refusals.add(about, bounded_text(" ".join(bounded_texts(entry.sentences))))
        elif about and entry.kind is Kind.GRANTED:
            self._refusals.remove(about)
        sentences, facts = bounded_texts(entry.sentences), _bounded_facts(entry.facts)
        if about is None:
            return Record(entry.at_s, "", "", entry.kind, sentences, "", facts)
        return Record(entry.at_s, about.key, about.title, entry.kind, sentences, about.life, facts)


def _bounded_facts(facts: Mapping[str, Fact]) -> Mapping[str, Fact]:
    """Return *facts* with each text cut to a bounded length: tenants wrote some of the texts."""
    return {key: bounded_text(fact) if isinstance(fact, str) else fact for key, fact in facts.items()}
