"""The machine's cards, the evidence of which of them a container was given, and what the device rules found.

Evidence comes from the create and from the kubelet. The files of drivers may hang: creates wait for them only up to a
limit.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from criproxy.devices.boundary import Boundary, Word
from criproxy.devices.card_locality import CardLocation, locate_cards
from criproxy.devices.classes.cards import SHOWN_IDS, Stocks, ids_text
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import OWN, Evidence, Given, Known, Subject, believed, has_new_card, weigh
from criproxy.devices.holdings import Holdings, by_kind, facts_of, vgpus_of
from criproxy.devices.plugin.enforcement import enforced_quota_in
from criproxy.host.cards import DriverFiles, card_names, find_cards
from criproxy.host.patience import Hangs, Patience
from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.node.devices.kubelet import Kubelet, PodNames

_LOUD = frozenset({Word.OVERRIDE, Word.STRIPPED, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED, Word.NO_NODES, Word.FAILED})
"""Findings that are logged as a warning."""
SCAN = "the scan for cards"
Classes = tuple[DeviceClass, ...]


@dataclass(slots=True, repr=False)
class MachineCards:
    """Scans for cards, and keeps the result."""

    context: Context
    patience: Patience
    scanned: Classes = ()
    """The classes of the last scan."""
    found: Stocks = field(default_factory=dict)
    """The cards that it found, by class."""
    _names: frozenset[str] | None = None
    """The names of files at that time; None if the scan has to be repeated."""
    _hanging: frozenset[str] = frozenset()
    """The files that hang, as they were last logged."""
    _files: DriverFiles = field(init=False)
    _limit_s: float = field(init=False)
    """The limit of a scan; the files of drivers together have a shorter one."""

    def __post_init__(self) -> None:
        limits = self.context.settings.device_limits
        self._files, self._limit_s = DriverFiles(self.patience, limits.drivers_s), limits.scan_s

    async def scan(self, classes: Classes, limit_s: float | None = None) -> None:
        """Find the cards of *classes*, within *limit_s*, half of it for files of drivers, where nobody waits for it.

        If a file hangs, the result of the last scan stays.
        """
        host_root, files, self._names = self.context.settings.host_root, self._files, None
        if limit_s is not None:
            files = replace(files, timeout_s=max(files.timeout_s, limit_s / 2))

        def work() -> tuple[Classes, frozenset[str], Stocks]:
            return classes, card_names(classes, host_root), find_cards(classes, host_root, files)

        with suppress(Hangs):  # `DeviceGuard.problem` names it
            while True:
                self.scanned, names, self.found = await self.patience.wait(SCAN, work, limit_s or self._limit_s)
                if self.scanned == classes:  # otherwise the scan was already running, for the classes before a reload
                    break
            self._names = None if self.patience.hanging else names
        self._log_hanging()

    async def rescan(self, classes: Classes) -> bool:
        """Scan again if files were added or removed since the last scan; this check takes milliseconds."""
        if (known := self._names) is not None:
            names, work = known, partial(card_names, classes, self.context.settings.host_root)
            with suppress(Hangs):
                names = await self.patience.wait("the device directories", work, self._limit_s)
            if names == known:
                return False
        await self.scan(classes)
        return True

    async def now(self, classes: Classes) -> Stocks:
        """Return the present cards of *classes*, for a command; if a file hangs, those of the last scan."""
        work = partial(find_cards, classes, self.context.settings.host_root, self._files)
        with suppress(Hangs):
            return await self.patience.wait(f"{SCAN} of a command", work, self._limit_s)
        return self.found

    def _log_hanging(self) -> None:
        hanging = self.patience.hanging.keys()
        for name in sorted(hanging - self._hanging):
            self.context.counters.device_evidence["driver", "hanging"] += 1
            self.context.log.warning("a scan of devices hangs", at=name)
        for name in sorted(self._hanging - hanging):
            self.context.log.info("a scan of devices no longer hangs", at=name)
        self._hanging = frozenset(hanging)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The evidence about the cards of one container."""

    evidence: Evidence
    cards: tuple[CardLocation, ...] = ()
    is_known: bool = False
    """Whether the kubelet knows the container."""
    quota: Quota | None = None
    """The quota of its vGPU, if it has one."""

    @property
    def is_joined(self) -> bool:
        """Whether our own device plugin has given it cards."""
        return any(each.source == OWN for each in self.evidence.values())


@dataclass(slots=True, repr=False)
class EvidenceGatherer:
    """Queries the source that the rules in force name."""

    context: Context
    cards: MachineCards
    patience: Patience
    source: Kubelet = field(init=False)
    _files: KubeletFiles = field(default_factory=KubeletFiles)
    """The files with which the source was created."""
    _before: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What was counted with other files."""
    names: PodNames = field(init=False)
    """Outlives the source, which a reload replaces."""

    def __post_init__(self) -> None:
        self.names = PodNames(lambda: self.context.state.node.pods.values())  # noqa: PLW0108 (the node is replaced)
        self.source = self._kubelet()

    @property
    def silence(self) -> str:
        """That the kubelet was asked and has not answered on these files yet; empty if that is not so."""
        counts, rules = self.context.counters.device_evidence - self._before, self.context.settings.devices
        asked = sum(count for (source, _), count in counts.items() if source in ("podresources", "checkpoint"))
        answered = counts["podresources", "answered"] + counts["podresources", "absent"] + counts["checkpoint", "read"]
        files = [file for file in (rules.kubelet.socket, rules.kubelet.checkpoint) if file] if rules else []
        if answered or not asked or not files:
            return ""
        return (
            f"the kubelet has not answered on {' and '.join(files)} since criproxy began to use them, so criproxy does "
            "not know which cards it has allocated, unless a CreateContainer request shows it; are "
            "devices.podresources and devices.checkpoint right?"
        )

    def of(self, rules: DeviceRules) -> Kubelet:
        """Return the source for *rules*: a reload may have changed the paths of the kubelet's files."""
        if rules.kubelet != self._files:
            self.context.tasks.spawn("leave the kubelet", self.source.close())
            self._files = rules.kubelet
            self._before = Counter(self.context.counters.device_evidence)
            self.source = self._kubelet()
        return self.source

    def sandboxes(self) -> set[str]:
        """Return the sandboxes about which the source has data."""
        return self.source.sandboxes()

    def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox."""
        self.source.forget(sandbox_id)

    async def close(self) -> None:
        """Close the source."""
        await self.source.close()

    def update_pod_names(self) -> None:
        """Remember the names of the pods on the node."""
        self.names.update()

    async def gather(
        self, rules: DeviceRules, subject: Subject, asked: DeviceRequest, *, runs: bool = False
    ) -> Gathered:
        """Return the cards allocated to *subject*, according to the source and to its create.

        The limit of the source is `DeviceLimits.source_s`; a scan of the machine's cards has another one. Not earlier:
        the kubelet allocates before it creates the sandbox, so that a query at RunPodSandbox (`Kubelet.prefetch`) is
        usually answered by now, but only the create has the container's name and what its device plugins wrote into it.
        Not later: cards cannot be taken from a running container, so the create cannot continue first. And not longer:
        a source that hangs would block every create on the node, while missing evidence costs one container its cards.
        """
        known: Known | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self.context.settings.device_limits.source_s):
                known = await self.of(rules).known(subject)
        if runs and known:  # a running container keeps its cards, even if the answer is about another pod
            if (annotations := believed(asked.annotations, known)) != asked.annotations:
                title = f"{subject.namespace}/{subject.pod}/{subject.container}"
                text = "a container claims devices that the kubelet has not allocated"
                self.context.log.warning(text, container=title)
                asked = replace(asked, annotations=annotations)
            known = replace(known, certain=True)
        if self.cards.scanned != rules.classes:
            await self.cards.scan(rules.classes)
        given = self.weighed(rules, asked, known)
        unknown = has_new_card(rules.classes, asked, given.evidence, self.cards.found)
        if unknown and await self.cards.rescan(rules.classes):
            given = self.weighed(rules, asked, known)
        return given

    def weighed(self, rules: DeviceRules, asked: DeviceRequest, known: Known | None = None) -> Gathered:
        """Return the evidence from a create and what the source has *known*, with the location of the cards."""
        topology, stocks = self.context.state.node.topology, self.cards.found
        if known and not known.certain and rules.on_no_evidence != "keep":
            known = None  # uncertain: a pod with a reused name would see the cards of the former pod
        answers = [known] if known else []
        evidence = weigh(rules.classes, asked, answers, stocks)
        cards = locate_cards(rules.classes, asked, evidence, answers, stocks, topology)
        quota = enforced_quota_in(asked.annotations) if vgpus_of(evidence) else None
        return Gathered(evidence, cards, is_known=known is not None, quota=quota)

    def _kubelet(self) -> Kubelet:
        context, settings = self.context, self.context.settings
        limits = settings.device_limits
        # Before `gather` gives up: what one file has said counts although the other one does not answer.
        files = replace(self._files, timeout_s=min(self._files.timeout_s, limits.source_s * 0.8))
        parts = context.counters, context.log, context.tasks, self.patience, self.names
        return Kubelet(files, settings.host_root, *parts, limits.scan_s)


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
            if finding.word is not Word.FAILED:  # `DeviceGuard` counts these
                counted[finding.kind, finding.word.value] += 1
        if done.refusal:
            counted["", "refused"] += 1  # the log and the history have the refusal

    def _record(self, rules: DeviceRules, container: Container, done: Boundary, given: Gathered) -> None:
        findings, paths = done.findings, [node.host_path for node in done.asked.devices]
        # Nodes that all cards need are omitted.
        nodes = {kind.name: [*filter(kind.is_card_node, paths)] for kind in rules.classes} if paths else {}
        facts = facts_of(findings, given.evidence, given.cards, nodes, given.quota)
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
