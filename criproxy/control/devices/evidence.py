"""Evidence on what a container was given: by its create, and by the kubelet, which is asked beside it."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from criproxy.control.context import Context
from criproxy.control.devices.cards import MachineCards
from criproxy.control.devices.kubelet import Kubelet
from criproxy.control.devices.pod_names import PodNames
from criproxy.devices.card_locality import CardLocation, locate_cards
from criproxy.devices.device_request import DeviceRequest
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.devices.enforcement import enforced_quota_in
from criproxy.devices.evidence import OWN, Evidence, Known, Source, Subject, has_new_card, weigh
from criproxy.devices.holdings import vgpus_of
from criproxy.devices.vgpu_profiles import Quota
from criproxy.discovery.patience import Patience
from criproxy.model.workload import Pod


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is known of the cards of one container."""

    evidence: Evidence
    cards: tuple[CardLocation, ...] = ()
    is_known: bool = False
    """Whether the source beside the create knows the container."""
    quota: Quota | None = None
    """Of its vGPU, if it has one."""

    @property
    def is_joined(self) -> bool:
        """Whether our own device plugin has given it cards."""
        return any(each.source == OWN for each in self.evidence.values())


@dataclass(slots=True, repr=False)
class EvidenceGatherer:
    """Asks the source that the rules in force name."""

    context: Context
    cards: MachineCards
    patience: Patience
    source: Source = field(init=False)
    _files: KubeletFiles = field(default_factory=KubeletFiles)
    """Those of which the source was made."""
    names: PodNames = field(init=False)
    """Outlives the source: a reload makes another one."""

    def __post_init__(self) -> None:
        self.names = PodNames(self._pods)
        self.source = self._kubelet()

    def of(self, rules: DeviceRules) -> Source:
        """The source of *rules*: a reload may have moved the kubelet's files."""
        if rules.kubelet != self._files:
            self.context.tasks.spawn("leave the kubelet", self.source.close())
            self._files = rules.kubelet
            self.source = self._kubelet()
        return self.source

    def look_at_pods(self) -> None:
        """Remember which pods have which names."""
        self.names.look()

    async def gather(
        self, rules: DeviceRules, subject: Subject, asked: DeviceRequest, *, runs: bool = False
    ) -> Gathered:
        """What *subject* was given, by the source and by what its create asks for.

        The source has `DeviceLimits.source_s`, and a scan of the machine's cards a limit of its own. Not earlier: the
        kubelet allocates before it creates the sandbox, so that a question at RunPodSandbox (`Source.prefetch`) usually
        has its answer by now, but only the create names the container and what its device plugins wrote into it. Not
        later: cards cannot be taken from a container that runs, so the create cannot go on first. And not longer: a
        source that hangs would hang every create of the node, while evidence that is missing costs one container its
        cards.
        """
        known: Known | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self.context.settings.device_limits.source_s):
                known = await self.of(rules).known(subject)
        if runs and known:  # it has what it has; to leave it its cards costs nothing where it is another's answer
            known = replace(known, certain=True)
        if self.cards.scanned != rules.classes:
            await self.cards.scan(rules.classes)
        given = self.weighed(rules, asked, known)
        unknown = has_new_card(rules.classes, asked, given.evidence, self.cards.found)
        if unknown and await self.cards.rescan(rules.classes):
            given = self.weighed(rules, asked, known)
        return given

    def weighed(self, rules: DeviceRules, asked: DeviceRequest, known: Known | None = None) -> Gathered:
        """What follows from a create and from what is *known* beside it, with where the cards are."""
        topology, stocks = self.context.state.node.topology, self.cards.found
        if known and not known.certain and rules.on_no_evidence != "keep":
            known = None  # with keep, nothing would limit what a container sees whose name was used before
        told = [known] if known else []
        evidence = weigh(rules.classes, asked, told, stocks)
        cards = locate_cards(rules.classes, asked, evidence, told, stocks, topology)
        quota = enforced_quota_in(asked.annotations) if vgpus_of(evidence) else None
        return Gathered(evidence, cards, is_known=known is not None, quota=quota)

    def _pods(self) -> Iterable[Pod]:
        return self.context.state.node.pods.values()

    def _kubelet(self) -> Kubelet:
        context, settings = self.context, self.context.settings
        return Kubelet(
            self._files,
            settings.host_root,
            context.counters,
            context.log,
            context.tasks,
            self.patience,
            self.names,
            settings.device_limits.look_s,
        )
