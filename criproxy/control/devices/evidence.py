"""Evidence on what a container was given: the sources beside its create are asked, one after the other."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.control.context import Context
from criproxy.control.devices.cards import MachineCards
from criproxy.control.devices.kubelet import Kubelet
from criproxy.devices.asked import Asked
from criproxy.devices.evidence import Evidence, Known, Source, Subject, weigh
from criproxy.devices.nearness import Whereabouts, whereabouts
from criproxy.devices.rules import DeviceRules, KubeletFiles
from criproxy.discovery.patience import Patience

SOURCE_TIMEOUT_S = 1.5
"""How long a create waits for one source at all; a source ends before by a bound of its own, to report what it has."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is known of the cards of one container."""

    evidence: Evidence
    cards: tuple[Whereabouts, ...] = ()
    is_known: bool = False
    """Whether a source beside the create knows the container."""


@dataclass(slots=True, repr=False)
class EvidenceGatherer:
    """Asks the sources of the rules in force."""

    context: Context
    cards: MachineCards
    patience: Patience
    sources: Sequence[Source] = ()
    """The most trusted one first; the next one is asked only where those before did not know everything."""
    _files: KubeletFiles = field(default_factory=KubeletFiles)
    """Those of which the sources were made."""

    def of(self, rules: DeviceRules) -> Sequence[Source]:
        """The sources of *rules*: a reload may have moved the kubelet's files."""
        if rules.kubelet != self._files:
            for source in self.sources:
                self.context.tasks.spawn("leave the kubelet", source.close())
            context, self._files = self.context, rules.kubelet
            root = context.settings.host_root
            self.sources = (Kubelet(rules.kubelet, root, context.counters, context.log, self.patience),)
        return self.sources

    async def gather(self, rules: DeviceRules, subject: Subject, asked: Asked) -> Gathered:
        """What *subject* was given, by the sources and by what its create asks for.

        Each source has `SOURCE_TIMEOUT_S`, and a scan of the machine's cards its own bound. Not earlier: the kubelet
        allocates before it creates the sandbox, so that a question at RunPodSandbox (`Source.prefetch`) usually has its
        answer by now, but only the create names the container and what its device plugins wrote into it. Not later:
        cards cannot be taken from a container that runs, so the create cannot go on first. And not longer: a source
        that hangs would hang every create of the node, while evidence that is missing costs one container its cards.
        """
        known = await self._ask(rules, subject)
        if self.cards.scanned != rules.classes:
            await self.cards.scan(rules.classes)
        given = self.weighed(rules, asked, known)
        if self.cards.lack(rules.classes, asked, given.evidence) and await self.cards.rescan(rules.classes):
            given = self.weighed(rules, asked, known)
        return given

    def weighed(self, rules: DeviceRules, asked: Asked, known: Sequence[Known] = ()) -> Gathered:
        """What follows from a create and from what is *known* beside it, with where the cards are."""
        topology, stocks = self.context.state.node.topology, self.cards.found
        evidence = weigh(rules.classes, asked, known, stocks)
        cards = whereabouts(rules.classes, asked, evidence, known, stocks, topology)
        return Gathered(evidence, cards, bool(known))

    async def _ask(self, rules: DeviceRules, subject: Subject) -> list[Known]:
        known: list[Known] = []
        for source in self.of(rules):
            with suppress(TimeoutError):
                async with asyncio.timeout(SOURCE_TIMEOUT_S):
                    if (answer := await source.known(subject)) is not None:
                        known.append(answer)
            if known and known[-1].complete:
                break
        return known
