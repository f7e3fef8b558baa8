"""The boundary around accelerators at CreateContainer: evidence is gathered, the rule asked, the message rewritten.

Evidence beside the request comes from `Source`s. None of them may hold a create for longer than its own bound; what
they can know of a pod they begin to find out when its sandbox is made.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from criproxy.control.context import Context
from criproxy.control.devices.faults import DeviceFaults
from criproxy.control.devices.kubelet import Kubelet
from criproxy.control.devices.publishing import DevicePublisher, facts_of, places_of, title_of
from criproxy.control.settings import OnError
from criproxy.cri import api_pb2 as api
from criproxy.cri import devices
from criproxy.cri.hiding import hide_all
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.asked import Asked
from criproxy.devices.boundary import DENIED, Boundary, Finding, Refusal, Word, boundary, exceptions
from criproxy.devices.cards import Stock, Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.devices.evidence import Evidence, Known, Source, Subject, weigh, without_nodes
from criproxy.devices.nearness import hints, whereabouts
from criproxy.devices.rules import DeviceRules, KubeletFiles
from criproxy.discovery.cards import DriverFiles, find_cards, names_seen
from criproxy.discovery.patience import Hangs, Patience
from criproxy.errors import Fault, Refused, StatusCode, StoreError
from criproxy.model.cpuset import CpuSet
from criproxy.model.workload import Container
from criproxy.store.record import Kind
from criproxy.views.holdings import Holdings
from criproxy.views.notices import Notice

SOURCE_TIMEOUT_S = 1.5
"""How long a create waits for one source at all; a source ends before by a bound of its own, to tell what it has."""
LOOK_TIMEOUT_S = 1.0
"""How long a create waits for a look at the machine's cards; files of drivers have a shorter bound of their own."""
ASK_AGAIN_S = 300.0
"""How often it is tried to find out what a container was given at whose create nobody looked."""
CARDS = "the look for cards"
HANDLER_TIMEOUT_S = 1.0
"""How long a create waits for the runtime to tell its pod's runtime handler, where nobody has seen that."""
_FAILED = "the rule about devices failed"


class DeviceRefused(Refused):
    """A container that the rules about devices do not let in."""

    def __init__(self, refusal: Refusal, container: Container | None) -> None:
        title = title_of(container)
        super().__init__(f"{f'container {title}' if title else 'the container'} is refused: {refusal.sentence}")
        self.code = refusal.code


class DeviceFault(Fault):
    """The rule itself has failed, and the owner of the node wants failures to refuse."""


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

    context: Context
    sources: Sequence[Source] = ()
    """Most trusted first; the next one is asked only where those before did not know everything."""
    holdings: Holdings = field(default_factory=Holdings)
    _kubelet: KubeletFiles = field(default_factory=KubeletFiles)
    """Those that the sources are of."""
    _runtimes: dict[str, str] = field(default_factory=dict)
    """Runtime handlers by sandbox, as far as they were seen."""
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asked_s: dict[str, float] = field(default_factory=dict)
    """By container, when it was last tried to find out what it was given, after its create."""
    _begun: bool = False
    """Whether what the history knows has been recalled."""
    _looked_for: tuple[DeviceClass, ...] = ()
    _names: frozenset[str] | None = None
    """What was there by name at the last look; None where it has to be repeated."""
    _stocks: Stocks = field(default_factory=dict)
    """The machine's cards of the classes that were looked for."""
    _patience: Patience = field(default_factory=Patience)
    """For all that may hang."""
    _files: DriverFiles = field(init=False)
    _hanging: frozenset[str] = frozenset()
    """What the log has been told of."""
    faults: DeviceFaults = field(init=False)
    _telling: DevicePublisher = field(init=False)

    def __post_init__(self) -> None:
        self._files = DriverFiles(self._patience)
        self.faults = DeviceFaults(self.context.log, self.context.counters)
        self._telling = DevicePublisher(self.context, self.holdings, self.faults)

    @property
    def rules(self) -> DeviceRules | None:
        """Those in force; a reload brings others."""
        return self.context.settings.devices

    @property
    def stocks(self) -> Stocks:
        """The machine's cards of the classes in force, as they were seen last; empty until somebody has looked."""
        return self._stocks if self.rules and self._looked_for == self.rules.classes else {}

    def cards_given(self) -> dict[str, int]:
        """How many of the machine's cards containers have, by class."""
        kinds = {kind.name: kind for kind in self._looked_for}
        node = self.context.state.node
        return {name: self.holdings.cards_given(node, kinds[name], stock) for name, stock in self.stocks.items()}

    def notices(self) -> list[Notice]:
        """What people should know of the rules in force."""
        if self.rules is None:
            return []
        problem, faults = self.problem, self.faults.notice(self.context.settings.on_error)
        return [*([Notice("devices-hanging", problem)] if problem else []), *([faults] if faults else [])]

    @property
    def problem(self) -> str | None:
        """What hangs, in one sentence; None where nothing does, or where there are no rules."""
        if self.rules is None or not (hanging := self._patience.hanging):
            return None
        named = ", ".join(f"{name} (for {since_s:.0f} s)" for name, since_s in sorted(hanging.items())[:4])
        more = f" and {len(hanging) - 4} more" if len(hanging) > 4 else ""
        return (
            f"not answered: {named}{more}; creates do not wait for it and go by what else is known of cards and of who "
            "was given which"
        )

    async def begin(self) -> None:
        """See which cards there are, and remember who had which when criproxy ended."""
        async with self._beginning:
            await self._begin()

    async def untold(self, items: Sequence[api.Container]) -> list[api.Container]:
        """Those of a list of the runtime of which nobody knows what they were given, though they are known."""
        async with self._beginning:
            if self.rules is not None and not self._begun:  # the section came with a reload
                await self._begin()
        if self.rules is None:
            return []
        node, now_s = self.context.state.node, asyncio.get_running_loop().time()
        known = ((item, node.containers.get(item.id)) for item in items)
        found = [item for item, each in known if each and self.holdings.is_untold(each)]
        self._asked_s = {key: at_s for key, at_s in self._asked_s.items() if now_s - at_s < ASK_AGAIN_S}
        found = [item for item in found if item.id not in self._asked_s]
        self._asked_s |= dict.fromkeys((item.id for item in found), now_s)
        return found

    async def _begin(self) -> None:
        if self.rules is None:
            return
        self._begun = True
        await self._look(self.rules.classes)
        manager = self.context.state
        try:
            self.holdings.recall(manager.node, await manager.newest(Kind.DEVICES))
        except StoreError as error:
            self.context.log.warning("nobody remembers who was given which cards", error=str(error))

    def sandbox_run(self, request: api.RunPodSandboxRequest, sandbox_id: str) -> None:
        """A sandbox was made: find out in the background what its containers were given."""
        if self.rules is None:
            return
        self._runtimes[sandbox_id] = request.runtime_handler
        pod = _subject(request.config, sandbox_id)
        for source in self._sources(self.rules):
            self.context.tasks.spawn(f"look at the devices of {sandbox_id}", source.prefetch(pod))

    def sandboxes(self) -> set[str]:
        """Those of which something is kept here."""
        kept = {sandbox_id for source in self.sources for sandbox_id in source.sandboxes()}
        return kept | self._runtimes.keys() | self.holdings.sandboxes()

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
            DeviceFault: the rule itself failed, and ``onError`` is ``refuse``.
        """
        rules = self.rules
        if rules is None:
            return Guarded()
        try:
            return await self._guard(rules, request, container)
        except DeviceRefused:
            raise
        except Exception as error:
            self.faults.note("deciding what it may see", title_of(container), error)
            if self.context.settings.on_error is OnError.REFUSE:
                raise DeviceFault(f"{_FAILED}: it is tried again (onError: refuse)") from error
            return self.hide(request, container)

    def hide(self, request: api.CreateContainerRequest, container: Container | None) -> Guarded:
        """Let the container of *request* see no card, after the rule has failed or hung: nothing of it runs here.

        Args:
            request: is changed in place.
            container: as for `guard`.

        Raises:
            DeviceRefused: it is privileged, and such containers are denied.
        """
        if (rules := self.rules) is None:
            return Guarded()
        who = devices.who(request, self._runtimes.get(request.pod_sandbox_id, ""))
        exempt = rules.exempt(who)
        if who.privileged and rules.privileged == "deny" and not exempt:
            raise DeviceRefused(Refusal(StatusCode.PERMISSION_DENIED, DENIED), container)
        before = request.SerializeToString(deterministic=True)
        if not exempt:
            hide_all(request, rules, who.runtime)
        left = exempt or "it sees no card but those of CDI devices and nodes in its create"
        done = Boundary(Asked(), (Finding("", Word.EXEMPT if exempt else Word.FAILED, f"{_FAILED}: {left}"),))
        with self.context.failures.harmless("what a create may see of devices"):
            self._telling.tell(rules, container, done, {}, ())
        return Guarded(changed=request.SerializeToString(deterministic=True) != before)

    async def _guard(
        self, rules: DeviceRules, request: api.CreateContainerRequest, container: Container | None
    ) -> Guarded:
        asked = devices.read(request)
        who = devices.who(request, await self._runtime(request, rules))
        subject = _subject(request.sandbox_config, request.pod_sandbox_id, request.config.metadata.name)
        try:
            known = await self._known(rules, subject)
            evidence = await self._weigh(rules, asked, known)
        except Exception as error:
            if self.context.settings.on_error is OnError.REFUSE:
                raise
            self.faults.note("finding out what it was given", title_of(container), error)
            known, evidence = [], weigh(rules.classes, asked, (), self._stocks)
            if rules.on_no_evidence == "keep":  # otherwise whatever makes us fail would show every card
                rules = replace(rules, on_no_evidence="hide")
        done = boundary(rules, who, asked, evidence, self._stocks)
        cards = whereabouts(rules.classes, asked, evidence, known, self._stocks, self.context.state.node.topology)
        with self.context.failures.harmless("what a create may see of devices"):
            self._telling.tell(rules, container, done, evidence, cards)
        if done.refusal:
            raise DeviceRefused(done.refusal, container)
        if done.asked != asked:
            devices.write(request, asked, done.asked)
        lacking = any(finding.word is Word.NO_NODES for finding in done.findings)
        return Guarded(done.asked != asked, hints(cards), lacking and not rules.update_without_nodes)

    async def found(self, item: api.Container, nodes: Sequence[str] | None, *, privileged: bool = False) -> Guarded:
        """Remember the cards of somebody of whom nobody here knew.

        Args:
            item: as the runtime lists it.
            nodes: the device nodes that the runtime made in it; None where it does not tell.
            privileged: whether it was created as a privileged container.
        """
        if (rules := self.rules) is None:
            return Guarded()
        known, asked = await self._known(rules, devices.subject(item)), devices.listed(item)
        evidence = await self._weigh(rules, asked, known)
        topology = self.context.state.node.topology
        cards = whereabouts(rules.classes, asked, evidence, known, self._stocks, topology)
        words = exceptions(rules, devices.who_is_listed(item, privileged=privileged))
        if known or words:
            before = self.holdings.found(item.pod_sandbox_id, item.metadata.name)
            facts = {**before, **facts_of(words, evidence), **places_of(cards)}
            self.holdings.note(item.pod_sandbox_id, item.metadata.name, facts)
        lacking = [] if nodes is None else without_nodes(rules.classes, evidence, nodes)
        for kind in lacking:
            self.context.counters.devices[kind, Word.NO_NODES.value] += 1
        return Guarded(hints=hints(cards), stays=bool(lacking) and not rules.update_without_nodes)

    def _sources(self, rules: DeviceRules) -> Sequence[Source]:
        """Those of the rules in force: a reload may have moved the kubelet's files."""
        if rules.kubelet != self._kubelet:
            for source in self.sources:
                self.context.tasks.spawn("leave the kubelet", source.close())
            context, self._kubelet = self.context, rules.kubelet
            root = context.settings.host_root
            self.sources = (Kubelet(rules.kubelet, root, context.counters, context.log, self._patience),)
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
        if self._is_news(rules.classes, asked, evidence) and await self._has_changed(rules.classes):
            await self._look(rules.classes)
            evidence = weigh(rules.classes, asked, known, self._stocks)
        return evidence

    async def _look(self, classes: tuple[DeviceClass, ...]) -> None:
        """Look at the machine's cards; while something hangs, what was known of them stays."""
        host_root, files = self.context.settings.host_root, self._files
        self._names = None

        def look() -> tuple[frozenset[str], Stocks]:
            return names_seen(classes, host_root), find_cards(classes, host_root, files)

        with suppress(Hangs):  # it is in `problem`
            names, self._stocks = await self._patience.wait(CARDS, look, LOOK_TIMEOUT_S)
            self._looked_for = classes
            self._names = None if self._patience.hanging else names
        self._tell_of_hanging()

    async def _has_changed(self, classes: tuple[DeviceClass, ...]) -> bool:
        """Whether a look at the machine may show other cards than the last one: it costs milliseconds."""
        if self._names is None:
            return True
        look = partial(names_seen, classes, self.context.settings.host_root)
        with suppress(Hangs):
            return await self._patience.wait("the folders of devices", look, LOOK_TIMEOUT_S) != self._names
        return False

    async def cards(self, classes: tuple[DeviceClass, ...]) -> Stocks:
        """The machine's cards of *classes*, looked at now unless that hangs."""
        look = partial(find_cards, classes, self.context.settings.host_root, self._files)
        with suppress(Hangs):
            return await self._patience.wait(f"{CARDS} of a command", look, LOOK_TIMEOUT_S)
        return self._stocks

    def _tell_of_hanging(self) -> None:
        hanging = frozenset(self._patience.hanging)
        for name in sorted(hanging - self._hanging):
            self.context.counters.device_evidence["driver", "hanging"] += 1
            self.context.log.warning("a look at devices hangs", at=name)
        for name in sorted(self._hanging - hanging):
            self.context.log.info("a look at devices hangs no more", at=name)
        self._hanging = hanging

    def _is_news(self, classes: Sequence[DeviceClass], asked: Asked, evidence: Evidence) -> bool:
        """Whether something was given of which the machine had no nodes, or no CDI specification.

        Drivers make nodes at their first use, and specifications for claims.
        """
        if asked.cdi and any(
            kind.cdi_device(name) is not None and name not in self._stocks.get(kind.name, Stock()).cdi_sets
            for kind in classes
            if kind.hide_value
            for name in asked.cdi
        ):
            return True
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
                reply = await self.context.runtime.call(
                    "PodSandboxStatus", ask, api.PodSandboxStatusResponse, HANDLER_TIMEOUT_S
                )
            except RuntimeCallError:
                return ""
            self._runtimes[sandbox_id] = reply.status.runtime_handler
        return self._runtimes.get(sandbox_id, "")


def _subject(sandbox: api.PodSandboxConfig, sandbox_id: str, container: str = "") -> Subject:
    names = sandbox.metadata
    return Subject(
        sandbox_id=sandbox_id, pod_uid=names.uid, namespace=names.namespace, pod=names.name, container=container
    )
