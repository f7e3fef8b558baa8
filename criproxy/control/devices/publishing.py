"""What is told of the rule about devices: counted, logged, kept for `explain` and for `criproxy devices`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criproxy.control.devices.faults import DeviceFaults
from criproxy.control.reconcile.reconciler import Followups
from criproxy.devices.boundary import Boundary, Finding, Word
from criproxy.devices.cards import SHOWN_IDS
from criproxy.devices.evidence import Evidence, Given
from criproxy.devices.nearness import Whereabouts
from criproxy.devices.rules import DeviceRules
from criproxy.model.cpuset import format_cpuset
from criproxy.model.workload import Container
from criproxy.store.record import Fact, Kind
from criproxy.views.holdings import EVERY_CLASS, Holdings

_LOUD = frozenset({Word.OVERRIDE, Word.STRIPPED, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED, Word.NO_NODES, Word.FAILED})
"""What people should look at when it repeats."""
MOST_IDS, MOST_CHARACTERS = 256, 253
"""Of ids that are kept for programs."""


@dataclass(frozen=True, slots=True)
class DeviceTelling:
    """Tells what was found at creates; no create fails by that."""

    followups: Followups
    holdings: Holdings
    faults: DeviceFaults

    def tell(
        self,
        rules: DeviceRules,
        container: Container | None,
        done: Boundary,
        evidence: Evidence,
        cards: Sequence[Whereabouts],
    ) -> None:
        """Count, log and keep for `explain` what was found; no values of variables. Never fails."""
        try:
            self._count(done, evidence)
            self._note(rules, container, done, evidence, cards)
        except Exception as error:  # noqa: BLE001 (what is told must not decide over a create)
            self.faults.note("telling what was found", title_of(container), error)

    def _count(self, done: Boundary, evidence: Evidence) -> None:
        counted, allocations = self.followups.counters.devices, self.followups.counters.device_allocations
        for kind, allocation in evidence.items():
            if allocation.given is Given.CARDS:
                allocations[kind, allocation.source] += 1
        for finding in done.findings:
            counted[finding.kind, finding.word.value] += finding.word is not Word.FAILED  # `DeviceFaults` counts these
        if done.refusal:
            counted["", "refused"] += 1  # the log and the history have it as a refusal

    def _note(
        self,
        rules: DeviceRules,
        container: Container | None,
        done: Boundary,
        evidence: Evidence,
        cards: Sequence[Whereabouts],
    ) -> None:
        if container is None:
            return
        facts = facts_of(done.findings, evidence) | places_of(cards)
        self.holdings.note(container.pod, container.name, facts)
        if not done.findings:
            return
        places = [card.sentence for card in cards if card.nodes][:SHOWN_IDS]
        sentences = [*(finding.sentence for finding in done.findings), *places]
        self.followups.manager.note(container, Kind.DEVICES, *sentences, **facts)
        quiet = {Word.OVERRIDE} if rules.user_override == "keep" else set[Word]()
        loud = [finding.sentence for finding in done.findings if finding.word in _LOUD - quiet]
        if loud:
            self.followups.log.warning("devices", container=container.title, why="; ".join(loud))
        else:
            found = "; ".join(_words(kind, words) for kind, words in _by_kind(done.findings).items())
            self.followups.log.info("devices", container=container.title, found=found)


def title_of(container: Container | None) -> str:
    """NAMESPACE/POD/CONTAINER; empty where nobody knows."""
    return container.title if container else ""


def _by_kind(findings: Iterable[Finding]) -> dict[str, str]:
    """By class, or "" for all of them, every word that was found, in their order."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        found.setdefault(finding.kind, []).append(finding.word.value)
    return {kind: ",".join(words) for kind, words in found.items()}


def _words(kind: str, words: str) -> str:
    return f"{kind}: {words}" if kind else words


def facts_of(findings: Sequence[Finding], evidence: Evidence) -> dict[str, Fact]:
    """What programs want to know: by class what was found, and the cards."""
    facts: dict[str, Fact] = {kind or EVERY_CLASS: words for kind, words in _by_kind(findings).items()}
    for kind, allocation in evidence.items():
        if allocation.given is Given.CARDS:
            facts |= {f"{kind}_ids": _listed(allocation.ids), f"{kind}_source": allocation.source}
    return facts


def _listed(ids: Sequence[str]) -> str:
    """Ids as programs find cards by them; beyond any real number and length they are cut."""
    return ",".join(each[:MOST_CHARACTERS] for each in ids[:MOST_IDS])


def places_of(cards: Sequence[Whereabouts]) -> dict[str, Fact]:
    """By class, the PCI addresses and NUMA nodes of the cards, in their order."""
    facts: dict[str, Fact] = {}
    for kind in dict.fromkeys(card.kind for card in cards):
        own = [card for card in cards if card.kind == kind][:MOST_IDS]
        if any(card.pci for card in own):
            facts[f"{kind}_pci"] = ",".join(card.pci or "?" for card in own)
        if any(card.nodes for card in own):
            facts[f"{kind}_numa"] = ";".join(format_cpuset(card.nodes) or "?" for card in own)
    return facts
