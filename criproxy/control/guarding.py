"""The boundary around accelerators at CreateContainer: evidence is gathered, the rule asked, the message rewritten.

Evidence beside the request comes from `Source`s. None of them may hold a create for longer than its own bound; what
they can know of a pod they begin to find out when its sandbox is made.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.control.followups import Followups
from criproxy.control.holdings import Holdings
from criproxy.control.kubelet import Kubelet
from criproxy.cri import api_pb2 as api
from criproxy.cri import devices
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.asked import Asked
from criproxy.devices.boundary import Boundary, Finding, Word, boundary
from criproxy.devices.cards import Stock, Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.devices.evidence import Evidence, Given, Known, Source, Subject, weigh, without_nodes
from criproxy.devices.nearness import Whereabouts, hints, whereabouts
from criproxy.devices.rules import DeviceRules, KubeletFiles
from criproxy.discovery.cards import find_cards
from criproxy.errors import Refused, StoreError
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.workload import Container
from criproxy.store.record import Fact, Kind

SOURCE_TIMEOUT_S = 1.5
"""How long a create waits for one source at all; a source ends before by a bound of its own, to tell what it has."""
HANDLER_TIMEOUT_S = 1.0
"""How long a create waits for the runtime to tell its pod's runtime handler, where nobody has seen that."""
_LOUD = frozenset({Word.OVERRIDE, Word.STRIPPED, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED, Word.NO_NODES})
"""What people should look at when it repeats."""


class DeviceRefused(Refused):
    """A container that the rules about devices do not let in."""

    def __init__(self, findings: Boundary) -> None:
        assert findings.refusal is not None
        super().__init__(findings.refusal.sentence)
        self.code = findings.refusal.code


@dataclass(frozen=True, slots=True)
class Guarded:
    """What came of one create."""

    changed: bool = False
    """Whether its message is another one now."""
    hints: tuple[CpuSet, ...] = ()
    """For each card of the container, the NUMA nodes next to it; see `Container.hints`."""
    stays: bool = False
    """Whether it has a card that an update may take away; see `Container.stays`."""


@dataclass(slots=True)
class DeviceGuard:
    """Applies the rules in force; does nothing where the policy file has no section about devices."""

    followups: Followups
    sources: Sequence[Source] = ()
    """Most trusted first; the next one is asked only where those before did not know everything."""
    holdings: Holdings = field(default_factory=Holdings)
    _kubelet: KubeletFiles = field(default_factory=KubeletFiles)
    """Those that the sources are of."""
    _runtimes: dict[str, str] = field(default_factory=dict)
    """Runtime handlers by sandbox, as far as they were seen."""
    _looked_for: tuple[DeviceClass, ...] = ()
    _stocks: Stocks = field(default_factory=dict)
    """The machine's cards of the classes that were looked for."""

    @property
    def rules(self) -> DeviceRules | None:
        """Those in force; a reload brings others."""
        return self.followups.settings.devices

    @property
    def stocks(self) -> Stocks:
        """The machine's cards of the classes in force, as they were seen last; empty until somebody has looked."""
        return self._stocks if self.rules and self._looked_for == self.rules.classes else {}

    def cards_given(self) -> dict[str, int]:
        """How many of the machine's cards containers have, by class."""
        kinds = {kind.name: kind for kind in self._looked_for}
        node = self.followups.manager.node
        return {name: self.holdings.cards_given(node, kinds[name], stock) for name, stock in self.stocks.items()}

    async def begin(self) -> None:
        """See which cards there are, and remember who had which when criproxy ended."""
        if self.rules is None:
            return
        await self._look(self.rules.classes)
        manager = self.followups.manager
        try:
            self.holdings.recall(manager.node, await manager.newest(Kind.DEVICES))
        except StoreError as error:
            self.followups.log.warning("nobody remembers who was given which cards", error=str(error))

    def sandbox_run(self, request: api.RunPodSandboxRequest, sandbox_id: str) -> None:
        """A sandbox was made: find out in the background what its containers were given."""
        if self.rules is None:
            return
        self._runtimes[sandbox_id] = request.runtime_handler
        pod = _subject(request.config, sandbox_id)
        for source in self._sources(self.rules):
            self.followups.tasks.spawn(f"look at the devices of {sandbox_id}", source.prefetch(pod))

    def sandbox_removed(self, sandbox_id: str) -> None:
        """Nobody will ask for it again."""
        self._runtimes.pop(sandbox_id, None)
        self.holdings.forget(sandbox_id)
        for source in self.sources:
            source.forget(sandbox_id)

    async def close(self) -> None:
        """No create will come any more."""
        for source in self.sources:
            await source.close()

    async def guard(self, request: api.CreateContainerRequest, container: Container | None) -> Guarded:
        """Let the container of *request* see what it may, and find out where its cards are.

        Args:
            request: is changed in place.
            container: whose history is told; None: only count and change.

        Raises:
            DeviceRefused: it must not be created.
        """
        rules = self.rules
        if rules is None:
            return Guarded()
        asked = devices.read(request)
        who = devices.who(request, await self._runtime(request, rules))
        container_name = request.config.metadata.name
        known = await self._known(rules, _subject(request.sandbox_config, request.pod_sandbox_id, container_name))
        evidence = await self._weigh(rules, asked, known)
        done = boundary(rules, who, asked, evidence, self._stocks)
        cards = whereabouts(rules.classes, asked, evidence, known, self._stocks, self.followups.manager.node.topology)
        with self.followups.manager.failures.harmless("what a create may see of devices"):
            self._tell(rules, container, done, evidence, cards)
        if done.refusal:
            raise DeviceRefused(done)
        if done.asked != asked:
            devices.write(request, asked, done.asked)
        lacking = any(finding.word is Word.NO_NODES for finding in done.findings)
        return Guarded(done.asked != asked, hints(cards), lacking and not rules.update_without_nodes)

    async def found(self, item: api.Container, nodes: Sequence[str] | None) -> Guarded:
        """Remember the cards of somebody of whom nobody here knew.

        Args:
            item: as the runtime lists it.
            nodes: the device nodes that the runtime made in it; None where it does not tell.
        """
        if (rules := self.rules) is None:
            return Guarded()
        known, asked = await self._known(rules, devices.subject(item)), devices.listed(item)
        evidence = await self._weigh(rules, asked, known)
        topology = self.followups.manager.node.topology
        cards = whereabouts(rules.classes, asked, evidence, known, self._stocks, topology)
        if known:
            self.holdings.note(item.pod_sandbox_id, item.metadata.name, _facts((), evidence) | _places(cards))
        lacking = [] if nodes is None else without_nodes(rules.classes, evidence, nodes)
        for kind in lacking:
            self.followups.counters.devices[kind, Word.NO_NODES.value] += 1
        return Guarded(hints=hints(cards), stays=bool(lacking) and not rules.update_without_nodes)

    def _sources(self, rules: DeviceRules) -> Sequence[Source]:
        """Those of the rules in force: a reload may have moved the kubelet's files."""
        if rules.kubelet != self._kubelet:
            for source in self.sources:
                self.followups.tasks.spawn("leave the kubelet", source.close())
            followups, self._kubelet = self.followups, rules.kubelet
            root = followups.settings.host_root
            self.sources = (Kubelet(rules.kubelet, root, followups.counters, followups.log),)
        return self.sources

    async def _known(self, rules: DeviceRules, container: Subject) -> list[Known]:
        """What the sources say; one that does not answer says nothing."""
        known: list[Known] = []
        for source in self._sources(rules):
            with suppress(TimeoutError):
                async with asyncio.timeout(SOURCE_TIMEOUT_S):
                    told = await source.known(container)
                known += [told] if told is not None else []
            if known and known[-1].complete:
                break
        return known

    async def _weigh(self, rules: DeviceRules, asked: Asked, known: Sequence[Known]) -> Evidence:
        """What was given; a card that nobody has seen yet lets us look at the machine again."""
        if self._looked_for != rules.classes:
            await self._look(rules.classes)
        evidence = weigh(rules.classes, asked, known, self._stocks)
        if self._is_news(rules.classes, evidence):
            await self._look(rules.classes)
            evidence = weigh(rules.classes, asked, known, self._stocks)
        return evidence

    async def _look(self, classes: tuple[DeviceClass, ...]) -> None:
        self._stocks = await asyncio.to_thread(find_cards, classes, self.followups.settings.host_root)
        self._looked_for = classes

    def _is_news(self, classes: Iterable[DeviceClass], evidence: Evidence) -> bool:
        """Whether something was given of which the machine had no nodes: drivers make some at their first use."""
        return any(
            not (card := self._stocks.get(kind.name, Stock()).card(kind, each)) or not card.nodes
            for kind in classes
            for each in evidence[kind.name].ids
            if kind.per_device
        )

    async def _runtime(self, request: api.CreateContainerRequest, rules: DeviceRules) -> str:
        """The runtime handler of the container's pod; asked for only where a class makes a difference by it."""
        if request.config.image.runtime_handler:
            return request.config.image.runtime_handler
        sandbox_id = request.pod_sandbox_id
        if sandbox_id not in self._runtimes and not all(kind.hides_in("") for kind in rules.classes if kind.hide_value):
            ask = api.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
            try:
                reply = await self.followups.runtime.call(
                    "PodSandboxStatus", ask, api.PodSandboxStatusResponse, HANDLER_TIMEOUT_S
                )
            except RuntimeCallError:
                return ""
            self._runtimes[sandbox_id] = reply.status.runtime_handler
        return self._runtimes.get(sandbox_id, "")

    def _tell(
        self,
        rules: DeviceRules,
        container: Container | None,
        done: Boundary,
        evidence: Evidence,
        cards: Sequence[Whereabouts],
    ) -> None:
        """Count, log and keep for `explain` what was found; no values of variables."""
        counted, facts = self.followups.counters.devices, _facts(done.findings, evidence) | _places(cards)
        for kind, allocation in evidence.items():
            if allocation.given is Given.CARDS:
                self.followups.counters.device_allocations[kind, allocation.source] += 1
        if container is not None:
            self.holdings.note(container.pod, container.name, facts)
        for finding in done.findings:
            counted[finding.kind, finding.word.value] += 1
        if done.refusal:
            counted["", "refused"] += 1  # the log and the history have it as a refusal
        if not done.findings or container is None:
            return
        sentences = [*(finding.sentence for finding in done.findings), *(card.sentence for card in cards if card.nodes)]
        self.followups.manager.note(container, Kind.DEVICES, *sentences, **facts)
        words = {finding.kind or "container": finding.word.value for finding in done.findings}
        quiet = {Word.OVERRIDE} if rules.user_override == "keep" else set[Word]()
        loud = [finding.sentence for finding in done.findings if finding.word in _LOUD - quiet]
        if loud:
            self.followups.log.warning("devices", container=container.title, why="; ".join(loud))
        else:
            self.followups.log.info("devices", container=container.title, **words)


def _facts(findings: Sequence[Finding], evidence: Evidence) -> dict[str, Fact]:
    """What programs want to know: by class what was found, and the cards."""
    words: dict[str, list[str]] = {}
    for finding in findings:
        words.setdefault(finding.kind or "container", []).append(finding.word.value)
    facts: dict[str, Fact] = {f"{kind}": ",".join(found) for kind, found in words.items()}
    for kind, allocation in evidence.items():
        if allocation.given is Given.CARDS:
            facts |= {f"{kind}_ids": ",".join(allocation.ids), f"{kind}_source": allocation.source}
    return facts


def _places(cards: Sequence[Whereabouts]) -> dict[str, Fact]:
    """By class, the PCI addresses and NUMA nodes of the cards, in their order."""
    facts: dict[str, Fact] = {}
    for kind in dict.fromkeys(card.kind for card in cards):
        own = [card for card in cards if card.kind == kind]
        if any(card.pci for card in own):
            facts[f"{kind}_pci"] = ",".join(card.pci or "?" for card in own)
        if any(card.nodes for card in own):
            facts[f"{kind}_numa"] = ";".join(format_cpuset(card.nodes) or "?" for card in own)
    return facts


def _subject(sandbox: api.PodSandboxConfig, sandbox_id: str, container: str = "") -> Subject:
    names = sandbox.metadata
    return Subject(
        sandbox_id=sandbox_id, pod_uid=names.uid, namespace=names.namespace, pod=names.name, container=container
    )
