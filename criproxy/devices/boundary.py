"""The rule at CreateContainer: a container sees exactly the cards that are allocated to it.

The rule is a pure and idempotent function. A variable controls the vendor's hook; on a runtime without the hook, the
device nodes are needed. Therefore both are written. The nodes also preserve access to the cards when systemd or runc
write the device rules again from the create request, as during a reload or an update of the cpuset.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from criproxy.devices.classes.cards import NO_CARDS, Card, Stock, Stocks, ids_text, visible_value
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, EnvVar, Requester
from criproxy.devices.evidence.evidence import UNKNOWN_ALLOCATION, Allocation, Evidence, Given
from criproxy.errors import StatusCode


class Word(Enum):
    """The kind of a finding about a container, for metrics and programs."""

    ALLOCATED = "allocated"
    HIDDEN = "hidden"
    WOULD_HIDE = "would-hide"
    OVERRIDE = "override"
    """The pod requests more than is allocated to it, and keeps that."""
    STRIPPED = "stripped"
    """The pod requested more than is allocated to it."""
    NODES_ADDED = "nodes-added"
    NO_NODES = "no-device-nodes"
    """An update of the cpuset may take the cards away."""
    CDI_UNRESOLVED = "cdi-unresolved"
    NO_EVIDENCE = "no-evidence"
    PRIVILEGED = "privileged"
    EXEMPT = "exempt"
    FAILED = "failed"
    """The rule itself failed, and all cards were hidden."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a container."""

    kind: str
    """The name of the class; empty: all classes."""
    word: Word
    sentence: str
    """For users. It contains ids and names, but no values of the container's variables."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a container is not created."""

    code: StatusCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """The result for one create."""

    asked: DeviceRequest
    """What the runtime gets: the same request, or one without some entries and with others at the end."""
    findings: tuple[Finding, ...] = ()
    refusal: Refusal | None = None


def boundary(rules: DeviceRules, who: Requester, asked: DeviceRequest, evidence: Evidence, stocks: Stocks) -> Boundary:
    """Apply the rule to a create.

    Args:
        rules: the rules of the policy file.
        who: the container.
        asked: the create request.
        evidence: the cards that are allocated to the container.
        stocks: the machine's cards.
    """
    if why := rules.exempt(who):
        return Boundary(asked, (Finding("", Word.EXEMPT, f"its devices are left unchanged: {why}"),))
    findings: tuple[Finding, ...] = ()
    if who.privileged:
        if rules.privileged == "deny":
            return Boundary(asked, refusal=Refusal(StatusCode.PERMISSION_DENIED, DENIED))
        left = "criproxy leaves them unchanged" if rules.privileged == "allow" else "nothing hides them"
        findings = (Finding("", Word.PRIVILEGED, f"it is privileged and sees every device node of the host: {left}"),)
        if rules.privileged == "allow":
            return Boundary(asked, findings)
    prefixes = tuple(prefix for kind in rules.classes for prefix in kind.env_prefixes)
    near = [env for env in asked.envs if env.name.startswith(prefixes)]
    for kind in rules.classes:
        given = evidence.get(kind.name, UNKNOWN_ALLOCATION)
        done = _Case(rules, who, kind, given, stocks.get(kind.name, NO_CARDS), near).apply(asked)
        if done.asked.envs is not asked.envs:
            near = [env for env in done.asked.envs if env.name.startswith(prefixes)]
        asked, findings = done.asked, findings + done.findings
        if done.refusal:
            return replace(done, findings=findings)
    return Boundary(asked, findings)


def exceptions(rules: DeviceRules, who: Requester) -> tuple[Finding, ...]:
    """Return findings about a running container: why it may see more cards than are allocated to it."""
    if why := rules.exempt(who):
        return (Finding("", Word.EXEMPT, f"its devices are left unchanged: {why}"),)
    if who.privileged:
        return (Finding("", Word.PRIVILEGED, "it is privileged and sees every device node of the host"),)
    return ()


DENIED = (
    "it is privileged and would see every device of the host, and this node's policy file does not allow that "
    "(devices.privileged: deny): leave securityContext.privileged out, or let devices.exempt name its namespace or "
    "image"
)


@dataclass(frozen=True, slots=True)
class _Case:
    """The rule for one class and one container."""

    rules: DeviceRules
    who: Requester
    kind: DeviceClass
    given: Allocation
    stock: Stock
    near: Sequence[EnvVar]
    """The variables of the request that a class may manage; a request may have very many others."""

    def apply(self, asked: DeviceRequest) -> Boundary:
        if self.given.given is Given.CARDS:
            return self._allocated(asked)
        if not self.kind.env_prefixes and not self.kind.strip_mount_prefix:
            return Boundary(asked)  # cards of such a class are device nodes only
        return self._unallocated(asked) if self._counts_as_none else self._unknown(asked)

    @property
    def _counts_as_none(self) -> bool:
        """Whether the container gets what one without a card gets.

        With ``fail``, a CDI device of an unknown kind is no reason to wait: the runtime applies its specification after
        the variables, so the hide value takes no card of it away. And the answer may never come, because podresources
        does not list init containers.
        """
        mode = self.rules.on_no_evidence
        return self.given.given is Given.NONE or mode == "hide" or (mode == "fail" and self._is_foreign_cdi)

    @property
    def _is_foreign_cdi(self) -> bool:
        """Whether only a CDI device of an unknown kind may have brought a card."""
        return self.given.given is Given.UNKNOWN and self.given.source == "cdi"

    def _unknown(self, asked: DeviceRequest) -> Boundary:
        """Apply the rule if neither the kubelet nor its checkpoint shows the allocation."""
        if self._is_foreign_cdi:
            text = "a CDI device of an unknown kind may include a card: criproxy changes nothing"
            return Boundary(asked, (self._finding(Word.CDI_UNRESOLVED, text),))
        by = ", ".join(self._tampered(asked, None))
        text = f"it is unknown whether a card is allocated to it, and it asks for one with {by}"
        if self.rules.on_no_evidence == "fail":
            refusal = Refusal(StatusCode.UNAVAILABLE, f"{self.kind.name}: {text}; the kubelet retries")
            return Boundary(asked, refusal=refusal)
        return Boundary(asked, (self._finding(Word.NO_EVIDENCE, f"{text}, which criproxy leaves unchanged"),))

    def _unallocated(self, asked: DeviceRequest) -> Boundary:
        wanted = self.kind.hiding(self.who.runtime)
        hidden = self._rewritten(asked, wanted)
        if hidden == asked:
            return Boundary(asked)
        tampered = self._tampered(asked, wanted)
        if tampered and self.rules.user_override != "strip":
            return Boundary(asked, (self._override(tampered),))
        other = "other " if self._is_foreign_cdi else ""
        hides = f"{self.kind.visible_env}={self.kind.hide_value} hides every"
        how = f"{hides if wanted else 'it sees no'} {other}card"
        stripped = tuple(self._stripped(tampered))
        if self.rules.hide_unallocated == "enforce":
            text = f"{self._why_none}: {how}"
            return Boundary(hidden, (self._finding(Word.HIDDEN, text), *stripped))
        own = self._without(asked, self._own(wanted)) if tampered else asked
        if self.rules.hide_unallocated == "off":
            return Boundary(own, stripped)
        text = f"{self._why_none}, and it may see the cards that its image asks for, because hideUnallocated is report"
        return Boundary(own, (self._finding(Word.WOULD_HIDE, f"{text}; with enforce, {how}"), *stripped))

    @property
    def _why_none(self) -> str:
        if self._is_foreign_cdi:
            return "a CDI device of an unknown kind may include a card"
        by = self.given.source if self.given.given is Given.NONE else "no evidence"
        return f"no card is allocated to it ({by})"

    def _allocated(self, asked: DeviceRequest) -> Boundary:
        ids, by_cdi = self.given.ids, any(self.kind.cdi_device(name) is not None for name in asked.cdi)
        if by_cdi and not ids:
            text = "one of its CDI devices does not identify its card, so it is unknown which cards it sees"
            findings = [self._finding(Word.CDI_UNRESOLVED, text)]
        else:
            cards = ids_text(ids) or "a card"
            findings = [self._finding(Word.ALLOCATED, f"{cards} is allocated to it ({self.given.source})")]
        # In addition to CDI, a variable would inject the card again, on runtimes whose hook reads it; or other cards.
        wanted = self._beside_cdi(asked) if by_cdi else self._visible(asked)
        rewritten = self._rewritten(asked, wanted)
        tampered = self._tampered(asked, wanted)
        if tampered and self.rules.user_override != "strip":
            rewritten = asked
            findings.append(self._override(tampered))
        else:
            findings += self._stripped(tampered)
        nodes = None if by_cdi else self._with_nodes(rewritten)
        return Boundary(nodes.asked, (*findings, *nodes.findings)) if nodes else Boundary(rewritten, tuple(findings))

    def _beside_cdi(self, asked: DeviceRequest) -> bytes | None:
        """Return the hide value if the variable of the image would show all cards in addition to those of CDI.

        A specification that sets the variable overrides the image; whether an unreadable one does is unknown.
        """
        names = [name for name in asked.cdi if self.kind.cdi_device(name) is not None]
        return self._no_others if all(self.stock.cdi_sets.get(name) is False for name in names) else None

    @property
    def _no_others(self) -> bytes | None:
        """The value for a container that sees its own cards without the variable; None for no variable."""
        return self.kind.hiding(self.who.runtime) if self.rules.hide_unallocated == "enforce" else None

    def _visible(self, asked: DeviceRequest) -> bytes | None:
        """Return the value of the visible variable for the allocation; None for no variable."""
        if not self.kind.write_env or not self.kind.visible_env:
            return self._no_others  # its plugins pass nodes; without a variable, that of the image would show all cards
        first = next((env.value for env in asked.envs if env.name == self.kind.visible_env), None)
        if first is not None and first.decode(errors="replace") in self.kind.strip_mount_prefix:
            return first  # the plugin names the cards with mounts
        value = visible_value(self.kind, self.given.ids, self.stock)
        return first if value is None else value  # the plugin's variable precedes that of the pod

    def _rewritten(self, asked: DeviceRequest, wanted: bytes | None) -> DeviceRequest:
        """Return *asked* with the visible variable exactly once, or never, and without requests for other cards.

        If it is not to be set, a value that hides all cards stays: without it, that of the image would count.
        """
        kind, managed, hiding = self.kind, self._managed(), self.kind.hiding(self.who.runtime)
        entries = [env for env in managed if env.name == kind.visible_env]
        if wanted is None:
            entries = [env for env in entries if env.value != hiding]
        fine = not entries if wanted is None else [env.value for env in entries] == [wanted]
        gone = {env for env in managed if env.name != kind.visible_env} | ({*entries} if not fine else set())
        left = self._without(asked, gone)
        if fine or wanted is None:
            return left
        return replace(left, envs=(*left.envs, EnvVar(kind.visible_env, wanted)))

    def _without(self, asked: DeviceRequest, gone: Collection[EnvVar]) -> DeviceRequest:
        """Return *asked* without the variables in *gone*, and without mounts that request other cards."""
        envs, mounts = asked.envs, asked.mounts
        if gone:
            envs = tuple([env for env in envs if env not in gone])
        if self.kind.strip_mount_prefix:
            mounts = tuple([mount for mount in mounts if self._fits(mount.container_path)])
        if envs is asked.envs and len(mounts) == len(asked.mounts):
            return asked
        return replace(asked, envs=envs, mounts=mounts)

    def _managed(self) -> list[EnvVar]:
        """Return the variables that the class manages: the visible one, and those that are removed."""
        kind, visible = self.kind, self.kind.visible_env
        beside = kind.beside_env if self.given.given is Given.CARDS else ()
        return [env for env in self.near if env.name == visible or (kind.strips(env.name) and env not in beside)]

    def _fits(self, container_path: str) -> bool:
        """Whether a mount at *container_path* requests no more than is allocated."""
        name = self.kind.asked_by_mount(container_path)
        beside = self.kind.beside_mounts if self.given.given is Given.CARDS else ()
        if name is None or name in self.given.ids or name in beside:
            return True
        card = self.stock.card(self.kind, name)  # a plugin may name cards by index
        return card is not None and card in self._given_cards

    @property
    def _given_cards(self) -> set[Card | None]:
        return {self.stock.card(self.kind, each) for each in self.given.ids}

    def _tampered(self, asked: DeviceRequest, wanted: bytes | None) -> list[str]:
        """Return the names of entries that request other cards; these are the pod's own, not those of plugins."""
        mounts = [f"mount {path}" for path, _ in asked.mounts if not self._fits(path)]
        return list(dict.fromkeys([*(env.name for env in self._own(wanted)), *mounts]))

    def _own(self, wanted: bytes | None) -> list[EnvVar]:
        """Return the variables that request other cards than those allocated."""
        visible = self.kind.visible_env
        return [env for env in self._managed() if env.name != visible or not self._is_fine(env.value, wanted)]

    def _is_fine(self, value: bytes, wanted: bytes | None) -> bool:
        """Whether *value* of the visible variable shows what is allocated, however it is written, or nothing."""
        if value in (wanted, self.kind.hide_value.encode()):
            return True
        words = value.decode(errors="replace").split(",")
        cards = [self.stock.card(self.kind, word) for word in words]
        return None not in cards and self._given_cards == set(cards)

    def _with_nodes(self, asked: DeviceRequest) -> Boundary:
        """Return *asked* with the device nodes of the allocated cards."""
        if not self.kind.per_device:
            return Boundary(asked)
        cards = [card for each in self.given.ids if (card := self.stock.card(self.kind, each))]
        own = [node for card in cards for node in card.nodes]
        wanted = [*own, *self.stock.shared] if own and self.rules.keep_access_on_update else []
        present = {path for node in asked.devices for path in (node.container_path, node.host_path)}
        paths = [path for path in dict.fromkeys(wanted) if path not in present]
        if paths:
            added = (DeviceNode(path, path, self.kind.permissions) for path in paths)
            complete = replace(asked, devices=(*asked.devices, *added))
            text = f"criproxy added {', '.join(paths)}, so that updates of its cpuset do not take its cards away"
            return Boundary(complete, (self._finding(Word.NODES_ADDED, text),))
        if not any(self.kind.is_card_node(node.host_path) for node in asked.devices):
            text = (  # one text, as docs/troubleshooting.md quotes it
                "its CreateContainer request has no device node of the card: an update of its cpuset or a reload of "
                "systemd may take the card away"
            )
            if not self.rules.update_without_nodes:
                text += ", so criproxy leaves it where it is"
            return Boundary(asked, (self._finding(Word.NO_NODES, text),))
        return Boundary(asked)

    def _override(self, tampered: list[str]) -> Finding:
        text = f"it asks for {self._more}, with {', '.join(tampered)}, which criproxy leaves unchanged"
        return self._finding(Word.OVERRIDE, text)

    def _stripped(self, tampered: list[str]) -> Iterator[Finding]:
        if tampered:
            text = f"it asked for {self._more}: criproxy removed {', '.join(tampered)}"
            yield self._finding(Word.STRIPPED, text)

    @property
    def _more(self) -> str:
        is_unknown = self.given.given is Given.CARDS and not self.given.ids  # perhaps the very cards that it has
        return "cards itself" if is_unknown else "more than was allocated to it"

    def _finding(self, word: Word, text: str) -> Finding:
        return Finding(self.kind.name, word, f"{self.kind.name}: {text}")
