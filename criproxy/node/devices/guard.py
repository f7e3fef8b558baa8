"""The device rules at CreateContainer: gather evidence, apply the rules, rewrite the message.

`evidence` scans the machine, gathers, and reports the findings; this module applies the rules.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from criproxy.cri import api_pb2 as api
from criproxy.cri import devices, translate
from criproxy.cri.devices import hide_all, left_to_see
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.boundary import DENIED, Boundary, Finding, Refusal, Word, boundary, exceptions
from criproxy.devices.card_locality import hints
from criproxy.devices.classes.cards import Stock, Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import Subject, without_nodes
from criproxy.devices.holdings import Holdings, facts_of, refusal, unhealthy_card
from criproxy.errors import Fault, Refused, StatusCode, StoreError
from criproxy.host.patience import Patience
from criproxy.model.cpuset import CpuSet
from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.node.devices.create_checks import CheckFailed, Vgpus, check_mps
from criproxy.node.devices.evidence import DevicePublisher, EvidenceGatherer, Gathered, MachineCards
from criproxy.node.settings import OnError
from criproxy.store.history import newest

ASK_AGAIN_S = 300.0
"""How often criproxy tries to find out which cards a container has whose create it did not see."""
MAX_VARIABLES = 1000
"""How many variables about devices a create may have. A class may manage all names with a prefix, and while each of
them is compared and removed, other calls wait."""
_MANY = f"it sets {{}} environment variables for devices, but at most {MAX_VARIABLES} are allowed: remove the rest"
_FAILED = "the device rules failed"
_REFUSED = "the create is refused, and the kubelet retries (onError: refuse)"


class DeviceRefused(Refused):
    """The device rules refuse a container."""

    def __init__(self, refusal: Refusal, container: Container | None) -> None:
        title = f"container {container.title}" if container else "the container"
        super().__init__(f"{title} is refused: {refusal.sentence}")
        self.code = refusal.code


class DeviceFault(Fault):
    """The device rules have failed, and ``onError`` is ``refuse``."""


@dataclass(frozen=True, slots=True)
class GuardResult:
    """The result of the device rules for one create."""

    changed: bool = False
    """Whether its message was changed."""
    hints: tuple[CpuSet, ...] = ()
    """For each card of the container, the NUMA nodes next to it; see `Container.hints`."""
    stays: bool = False
    """Whether it has a card that an update may take away; see `Container.stays`."""


@dataclass(slots=True)
class DeviceGuard:
    """Applies the device rules in force; does nothing if the policy file has no section about devices."""

    context: Context
    holdings: Holdings = field(default_factory=Holdings)
    _runtimes: dict[str, str] = field(default_factory=dict)
    """Runtime handlers by sandbox, as far as they are known."""
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asked_s: dict[str, float] = field(default_factory=dict)
    """By container, when criproxy last queried its cards, after its create."""
    _begun: bool = False
    """Whether the cards were scanned, and the holdings restored from the history."""
    _patience: Patience = field(default_factory=Patience)
    """Limits waits for files and queries that may hang."""
    cards: MachineCards = field(init=False)
    evidence: EvidenceGatherer = field(init=False)
    _publisher: DevicePublisher = field(init=False)
    _vgpus: Vgpus = field(init=False)

    def __post_init__(self) -> None:
        self.cards = MachineCards(self.context, self._patience)
        self.evidence = EvidenceGatherer(self.context, self.cards, self._patience)
        self._publisher = DevicePublisher(self.context, self.holdings)
        self._vgpus = Vgpus(self.context, self.holdings, self._patience)

    @property
    def rules(self) -> DeviceRules | None:
        """The rules in force; a reload replaces them."""
        return self.context.settings.devices

    @property
    def stocks(self) -> Stocks:
        """The machine's cards of the classes in force, from the last scan; empty before the first one."""
        return self.cards.found if self.rules and self.cards.scanned == self.rules.classes else {}

    async def stocks_now(self, classes: tuple[DeviceClass, ...]) -> Stocks:
        """Return the machine's present cards of *classes*; those of the last scan if a file hangs."""
        return await self.cards.now(classes)

    def cards_given(self) -> dict[str, int]:
        """Return how many of the machine's cards are allocated to containers, by class."""
        kinds = {kind.name: kind for kind in self.cards.scanned}
        node = self.context.state.node
        return {name: self.holdings.cards_given(node, kinds[name], stock) for name, stock in self.stocks.items()}

    def ids_given(self, known: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Return how many ids are allocated to containers, by class and resource, for those in *known*."""
        kinds, resources = {kind for kind, _ in known}, {resource for _, resource in known}
        return self.holdings.ids_given(self.context.state.node, kinds, resources)

    @property
    def problem(self) -> str | None:
        """Which files or queries hang, in one sentence; None if none does, or if there are no rules."""
        if self.rules is None or not (hanging := self._patience.hanging):
            return None
        named = ", ".join(f"{name} (for {since_s:.0f} s)" for name, since_s in sorted(hanging.items())[:4])
        more = f" and {len(hanging) - 4} more" if len(hanging) > 4 else ""
        return (
            f"no answer from {named}{more}; CreateContainer requests do not wait for it, and criproxy uses its other "
            "information about cards and the containers that have them"
        )

    async def begin(self) -> None:
        """Scan the machine's cards, and restore from the history which container had which cards: once."""
        async with self._beginning:
            if self.rules is None or self._begun:
                return
            limits = self.context.settings.device_limits
            # No create waits yet: the cards are known to the first ones although those do not wait for a scan.
            await self.cards.scan(self.rules.classes, max(limits.scan_s, limits.adoption_s))
            self.evidence.update_pod_names()
            node = self.context.state.node
            lives = [container.life for container in node.containers.values()]
            try:
                self.holdings.recall(node, await self.context.persister.read(newest, Kind.DEVICES, lives))
            except StoreError as error:
                text = "cannot read from the history which container had which cards"
                self.context.log.warning(text, error=str(error))
            self._begun = True

    async def unseen(self, items: Sequence[api.Container]) -> list[api.Container]:
        """Return those containers of a list of the runtime whose cards are not known yet."""
        await self.begin()  # the section may have come with a reload
        if self.rules is None:
            return []
        node, now_s = self.context.state.node, asyncio.get_running_loop().time()
        self._asked_s = {key: at_s for key, at_s in self._asked_s.items() if now_s - at_s < ASK_AGAIN_S}
        asked, known = self._asked_s, node.containers
        found = [each for each in items if each.id in known and each.id not in asked]
        found = [each for each in found if self.holdings.is_unknown(known[each.id])]
        self._asked_s |= dict.fromkeys((item.id for item in found), now_s)
        return found

    def sandbox_run(self, request: api.RunPodSandboxRequest, sandbox_id: str) -> None:
        """Query in the background which cards are allocated to the containers of a sandbox that was created."""
        if self.rules is None:
            return
        self._runtimes[sandbox_id] = request.runtime_handler
        pod = devices.subject_in(request.config, sandbox_id)
        self.context.tasks.spawn(f"find the devices of {sandbox_id}", self.evidence.of(self.rules).prefetch(pod))

    def sandboxes(self) -> set[str]:
        """Return the sandboxes of which this part has data."""
        return self.evidence.sandboxes() | self._runtimes.keys() | self.holdings.sandboxes()

    def sandbox_removed(self, sandbox_id: str) -> None:
        """Forget a sandbox."""
        self._runtimes.pop(sandbox_id, None)
        self.holdings.forget(sandbox_id)
        self.evidence.forget(sandbox_id)

    async def close(self) -> None:
        """Close the source of evidence; no create may follow."""
        await self.evidence.close()

    async def guard(self, request: api.CreateContainerRequest, container: Container | None) -> GuardResult:
        """Change the create so that the container sees only the cards that it may see, and locate its cards.

        Args:
            request: the create; changed in place.
            container: the container whose history gets the findings; None: do not record them.

        Raises:
            DeviceRefused: the container must not be created.
            DeviceFault: the rules failed, and ``onError`` is ``refuse``.
        """
        rules = self.rules
        if rules is None:
            return GuardResult()
        try:
            return await self._guard(rules, request, container)
        except DeviceRefused:
            raise
        except Exception as error:
            if self.context.settings.on_error is OnError.REFUSE:
                self._failed("deciding what it may see", container, error)
                raise DeviceFault(f"{_FAILED}: the kubelet retries (onError: refuse)") from error
            return self.hide(request, container, error)

    def hide(self, request: api.CreateContainerRequest, container: Container | None, error: Exception) -> GuardResult:
        """Hide all cards from the container of *request* after the rules failed or hung; the rules do not run here.

        Args:
            request: the create; changed in place.
            container: as for `guard`.
            error: why the rules did not return.

        Raises:
            DeviceRefused: the container is privileged, and the rules deny privileged containers.
        """
        self._failed("deciding what it may see", container, error)
        if (rules := self.rules) is None:
            return GuardResult()
        who = devices.identity(request, self._runtimes.get(request.pod_sandbox_id, ""))
        exempt = rules.exempt(who)
        if who.privileged and rules.privileged == "deny" and not exempt:
            raise DeviceRefused(Refusal(StatusCode.PERMISSION_DENIED, DENIED), container)
        before = request.SerializeToString(deterministic=True)
        if not exempt:
            hide_all(request, rules, who.runtime)
        left = exempt or left_to_see(rules)
        done = Boundary(DeviceRequest(), (Finding("", Word.EXEMPT if exempt else Word.FAILED, f"{_FAILED}: {left}"),))
        self._publisher.publish(rules, container, done, Gathered({}))
        return GuardResult(changed=request.SerializeToString(deterministic=True) != before)

    async def _guard(
        self, rules: DeviceRules, request: api.CreateContainerRequest, container: Container | None
    ) -> GuardResult:
        who = devices.identity(request, await self._runtime(request, rules))
        variables = await devices.managed_variables(request, rules.classes)
        if len(variables) > MAX_VARIABLES and not rules.exempt(who):
            raise DeviceRefused(Refusal(StatusCode.INVALID_ARGUMENT, _MANY.format(len(variables))), container)
        entries = devices.read(request, variables)
        asked = entries.asked
        subject = devices.subject_in(request.sandbox_config, request.pod_sandbox_id, request.config.metadata.name)
        try:
            given = await self.evidence.gather(rules, subject, asked)
        except Exception as error:
            if self.context.settings.on_error is OnError.REFUSE:
                raise
            self._failed("finding out what it was given", container, error)
            given = self.evidence.weighed(rules, asked)
            if rules.on_no_evidence == "keep":  # with keep, a tenant who makes criproxy fail would see every card
                rules = replace(rules, on_no_evidence="hide")
        done = boundary(rules, who, asked, given.evidence, self.cards.found)
        if not done.refusal:
            try:
                done = await self._checked(rules, done, given, subject, is_exempt=bool(rules.exempt(who)))
            except CheckFailed as error:
                done = replace(done, refusal=error.refusal)
        self._publisher.publish(rules, container, done, given)
        if done.refusal:
            raise DeviceRefused(done.refusal, container)
        if done.asked != asked:
            entries.write(done.asked)
        lacking = any(finding.word is Word.NO_NODES for finding in done.findings)
        return _guarded(rules, given, lacking=lacking, changed=done.asked != asked)

    async def _checked(
        self, rules: DeviceRules, done: Boundary, given: Gathered, subject: Subject, *, is_exempt: bool
    ) -> Boundary:
        """Return *done* after checks of the cards and of the host; raise CheckFailed if it is refused."""
        if incidents := self.context.state.node.incidents:
            facts = facts_of((), given.evidence, given.cards, {})
            if incident := unhealthy_card(incidents.values(), rules.classes, facts, self.cards.found):
                self.context.counters.device_creates_refused[incident.device_class] += 1
                return replace(done, refusal=refusal(incident))
        done = replace(done, asked=await check_mps(self.context, self._patience, done.asked, given))
        self._vgpus.check_single(given)
        if given.quota:
            await self._vgpus.check_free(given, subject)
            if not is_exempt:
                return await self._vgpus.limited(done, given)
        return done

    async def found(self, item: api.Container, info: Mapping[str, str]) -> GuardResult:
        """Find and remember the cards of a container whose create criproxy did not see.

        Args:
            item: the container as the runtime lists it.
            info: verbose information of the runtime: the device nodes of the container, and whether it is privileged.
        """
        if (rules := self.rules) is None:
            return GuardResult()
        given = await self.evidence.gather(rules, devices.subject(item), devices.listed(item), runs=True)
        words = exceptions(rules, devices.listed_identity(item, privileged=translate.privileged_in(info)))
        if given.is_known or given.is_joined or words:
            facts = facts_of(words, given.evidence, given.cards, {}, given.quota)
            self.holdings.add(item.pod_sandbox_id, item.metadata.name, facts)
        nodes = translate.device_nodes_in(info)
        lacking = [] if nodes is None else without_nodes(rules.classes, given.evidence, nodes)
        self.context.counters.devices.update((kind, Word.NO_NODES.value) for kind in lacking)
        return _guarded(rules, given, lacking=bool(lacking))

    def users(self, device_class: str, card: str) -> list[Container]:
        """Return the containers that use a card; none if the rules do not have its class."""
        rules, node = self.rules, self.context.state.node
        kind = next((kind for kind in rules.classes if kind.name == device_class), None) if rules else None
        stock = self.cards.found.get(device_class, Stock())
        return list(self.holdings.users(node, kind, stock, card)) if kind else []

    def _failed(self, doing: str, container: Container | None, error: Exception) -> None:
        """Count, remember and log that the rules failed while *doing* something; only the log has the error's text."""
        context, title = self.context, container.title if container else "a container"
        context.counters.devices["", "failed"] += 1
        is_refused = context.settings.on_error is OnError.REFUSE
        after = _REFUSED if is_refused else left_to_see(self.rules or DeviceRules(classes=()))
        context.failures.add("devices", f"{_FAILED}, last at {title}: the log has the error; {after}", same_as=_FAILED)
        context.log.error(_FAILED, doing=doing, container=title, exc_info=error)

    async def _runtime(self, request: api.CreateContainerRequest, rules: DeviceRules) -> str:
        """Return the runtime handler of the container's pod; query the runtime only if a class depends on it."""
        sandbox_id, image = request.pod_sandbox_id, request.config.image
        if image.runtime_handler:
            return image.runtime_handler
        if sandbox_id not in self._runtimes and not all(kind.hides_in("") for kind in rules.classes if kind.hide_value):
            ask = api.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
            limit_s = self.context.settings.device_limits.scan_s
            with suppress(RuntimeCallError):
                reply = await self.context.runtime.call("PodSandboxStatus", ask, api.PodSandboxStatusResponse, limit_s)
                self._runtimes[sandbox_id] = reply.status.runtime_handler
        return self._runtimes.get(sandbox_id, "")


def _guarded(rules: DeviceRules, given: Gathered, *, lacking: bool, changed: bool = False) -> GuardResult:
    """Return the result; a container whose cards lack nodes stays where it is unless the rules allow updates."""
    return GuardResult(changed, hints(given.cards), lacking and not rules.update_without_nodes)
