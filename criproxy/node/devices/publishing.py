"""Publishes the findings of the device rules: counters, log, and records for `explain` and `criproxy devices`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from criproxy.devices.boundary import Boundary, Word
from criproxy.devices.classes.cards import SHOWN_IDS, ids_text
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import OWN, Evidence, Given
from criproxy.devices.holdings import Holdings, by_kind, facts_of
from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.node.devices.evidence import Gathered

_LOUD = frozenset({Word.OVERRIDE, Word.STRIPPED, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED, Word.NO_NODES, Word.FAILED})
"""Findings that are logged as a warning."""


@dataclass(frozen=True, slots=True)
class DevicePublisher:
    """Publishes the findings at creates; an error here does not fail the create."""

    context: Context
    holdings: Holdings

    def publish(self, rules: DeviceRules, container: Container | None, done: Boundary, given: Gathered) -> None:
        """Count, log and record the findings, without values of variables. Never raises."""
        with self.context.failures.harmless("what a create may see of devices"):
            self._count(done, given.evidence)
            if container is not None:
                self._record(rules, container, done, given)

    def _count(self, done: Boundary, evidence: Evidence) -> None:
        counted, allocations = self.context.counters.devices, self.context.counters.device_allocations
        for kind, allocation in evidence.items():
            if allocation.given is Given.CARDS:
                allocations[kind, allocation.source] += 1
        for finding in done.findings:
            counted[finding.kind, finding.word.value] += finding.word is not Word.FAILED  # `DeviceGuard` counts these
        if done.refusal:
            counted["", "refused"] += 1  # the log and the history have the refusal

    def _record(self, rules: DeviceRules, container: Container, done: Boundary, given: Gathered) -> None:
        findings = done.findings
        nodes = _nodes_of(rules, done.asked)
        facts = facts_of(done.findings, given.evidence, given.cards, nodes, given.quota)
        self.holdings.note(container.pod, container.name, facts)
        if not findings:
            return
        places = [card.sentence for card in given.cards if card.nodes][:SHOWN_IDS]
        sentences = [*_chain(given.evidence), *(finding.sentence for finding in findings), *places]
        self.context.state.note(container, Kind.DEVICES, *sentences, **facts)
        quiet = {Word.OVERRIDE} if rules.user_override == "keep" else set[Word]()
        if loud := [finding.sentence for finding in findings if finding.word in _LOUD - quiet]:
            self.context.log.warning("devices", container=container.title, why="; ".join(loud))
        else:
            found = (f"{kind}: {words}" if kind else words for kind, words in by_kind(findings).items())
            self.context.log.info("devices", container=container.title, found="; ".join(found))


def _chain(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for each allocation by our device plugin, with the kubelet's names."""
    for kind, allocation in evidence.items():
        for share in allocation.shares[:SHOWN_IDS]:
            if share.source == OWN:
                yield f"{kind}: the device plugin has allocated {share.resource} to it: {ids_text(share.ids)}"


def _nodes_of(rules: DeviceRules, asked: DeviceRequest) -> Mapping[str, Sequence[str]]:
    """Return the device nodes of single cards in a create, by class; nodes that all cards need are omitted."""
    paths = [node.host_path for node in asked.devices]
    return {kind.name: [path for path in paths if kind.is_card_node(path)] for kind in rules.classes} if paths else {}
