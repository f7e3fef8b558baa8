"""The rule at CreateContainer: a container sees exactly the cards that are allocated to it.

A pure function, and one that its own output passes unchanged. What a vendor's hook does is asked for by a variable; on
a runtime without the hook the device nodes do the work. So both are written. The nodes also keep the cards when systemd
or runc write the device rules anew from what the create said, as at a reload or an update of the cpuset.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from criproxy.devices.asked import Asked, DeviceNode, EnvVar, Who
from criproxy.devices.cards import Stock, Stocks, ids_text, visible_value
from criproxy.devices.classes import DeviceClass
from criproxy.devices.evidence import NOBODY_TELLS, Allocation, Evidence, Given
from criproxy.devices.rules import DeviceRules
from criproxy.errors import StatusCode


class Word(Enum):
    """What was found at one container, for metrics and programs."""

    ALLOCATED = "allocated"
    HIDDEN = "hidden"
    WOULD_HIDE = "would-hide"
    OVERRIDE = "override"
    """The pod asks for more than it was given, and keeps that."""
    STRIPPED = "stripped"
    """The pod asked for more than it was given."""
    NODES_ADDED = "nodes-added"
    NO_NODES = "no-device-nodes"
    """An update of its cpuset may take its cards away."""
    CDI_UNRESOLVED = "cdi-unresolved"
    NO_EVIDENCE = "no-evidence"
    PRIVILEGED = "privileged"
    EXEMPT = "exempt"
    FAILED = "failed"
    """The rule itself failed, and every card was hidden."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found at a container."""

    kind: str
    """The name of the class; empty where all are meant."""
    word: Word
    sentence: str
    """For people. It has ids and names, and no value of a variable that was there."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a container is not created."""

    code: StatusCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """What becomes of one create."""

    asked: Asked
    """What the runtime shall get: the same as before, or without some entries and with others at the end."""
    findings: tuple[Finding, ...] = ()
    refusal: Refusal | None = None


def boundary(rules: DeviceRules, who: Who, asked: Asked, evidence: Evidence, stocks: Stocks) -> Boundary:
    """What a container may see.

    Args:
        rules: those of the policy file.
        who: the container.
        asked: its create as it came.
        evidence: what it was given.
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
        given = evidence.get(kind.name, NOBODY_TELLS)
        done = _Case(rules, who, kind, given, stocks.get(kind.name, _NONE), near).apply(asked)
        if done.asked.envs is not asked.envs:
            near = [env for env in done.asked.envs if env.name.startswith(prefixes)]
        asked, findings = done.asked, findings + done.findings
        if done.refusal:
            return replace(done, findings=findings)
    return Boundary(asked, findings)


def exceptions(rules: DeviceRules, who: Who) -> tuple[Finding, ...]:
    """Findings about a running container beside its cards: why it may see more than it was given."""
    if why := rules.exempt(who):
        return (Finding("", Word.EXEMPT, f"its devices are left unchanged: {why}"),)
    if who.privileged:
        return (Finding("", Word.PRIVILEGED, "it is privileged and sees every device node of the host"),)
    return ()


_NONE = Stock()
DENIED = (
    "it is privileged and would see every device of the host, and this node's policy file does not allow that "
    "(devices.privileged: deny): leave securityContext.privileged out, or let devices.exempt name its namespace or "
    "image"
)


@dataclass(frozen=True, slots=True)
class _Case:
    """One class at one container."""

    rules: DeviceRules
    who: Who
    kind: DeviceClass
    given: Allocation
    stock: Stock
    near: Sequence[EnvVar]
    """Those variables of the create that a class may manage, of a great many."""

    def apply(self, asked: Asked) -> Boundary:
        if self.given.given is Given.CARDS:
            return self._allocated(asked)
        if not self.kind.env_prefixes and not self.kind.strip_mount_prefix:
            return Boundary(asked)  # cards of such a class come as nodes only
        if self.given.given is Given.NONE or self.rules.on_no_evidence == "hide":
            return self._unallocated(asked)
        return self._unknown(asked)

    def _unknown(self, asked: Asked) -> Boundary:
        """Neither the kubelet nor its checkpoint shows what was given."""
        if self.given.source == "cdi":
            text = "a CDI device of an unknown kind may include a card: criproxy changes nothing"
            return Boundary(asked, (self._found(Word.CDI_UNRESOLVED, text),))
        by = ", ".join(self._tampered(asked, None))
        text = f"it is unknown whether a card is allocated to it, and it asks for one with {by}"
        if self.rules.on_no_evidence == "fail":
            refusal = Refusal(StatusCode.UNAVAILABLE, f"{self.kind.name}: {text}; the kubelet retries")
            return Boundary(asked, refusal=refusal)
        return Boundary(asked, (self._found(Word.NO_EVIDENCE, f"{text}, which criproxy leaves unchanged"),))

    def _unallocated(self, asked: Asked) -> Boundary:
        hides = self.kind.hide_value and self.kind.hides_in(self.who.runtime)
        wanted = self.kind.hide_value.encode() if hides else None
        hidden = self._rewritten(asked, wanted)
        if hidden == asked:
            return Boundary(asked)
        tampered = self._tampered(asked, wanted)
        if tampered and self.rules.user_override != "strip":
            return Boundary(asked, (self._override(tampered),))
        by = self.given.source if self.given.given is Given.NONE else "no evidence"
        how = f"{self._variable}={self.kind.hide_value} hides every card" if hides else "it sees none"
        stripped = tuple(self._stripped(tampered))
        if self.rules.hide_unallocated == "enforce":
            text = f"no card is allocated to it ({by}): {how}"
            return Boundary(hidden, (self._found(Word.HIDDEN, text), *stripped))
        own = self._without_own(asked, wanted) if tampered else asked
        if self.rules.hide_unallocated == "off":
            return Boundary(own, stripped)
        text = (
            f"no card is allocated to it ({by}), and it may see the cards that its image asks for, because "
            f"hideUnallocated is report; with enforce, {how}"
        )
        return Boundary(own, (self._found(Word.WOULD_HIDE, text), *stripped))

    def _allocated(self, asked: Asked) -> Boundary:
        ids, by_cdi = self.given.ids, any(self.kind.cdi_device(name) is not None for name in asked.cdi)
        if by_cdi and not ids:
            text = "one of its CDI devices does not identify its card: criproxy changes nothing"
            return Boundary(asked, (self._found(Word.CDI_UNRESOLVED, text),))
        cards = ids_text(ids) or "a card"
        findings = [self._found(Word.ALLOCATED, f"{cards} is allocated to it ({self.given.source})")]
        # Beside CDI a variable would inject the card a second time, on runtimes whose hook obeys it.
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

    def _beside_cdi(self, asked: Asked) -> bytes | None:
        """The hide value where the image's own variable would show every card beside those that CDI brings.

        Specifications that set the variable outweigh the image; for one that cannot be read that is not known.
        """
        names = [name for name in asked.cdi if self.kind.cdi_device(name) is not None]
        silent = all(self.stock.cdi_sets.get(name) is False for name in names)
        hides = self.kind.hide_value and self.kind.hides_in(self.who.runtime)
        return self.kind.hide_value.encode() if silent and hides and self.rules.hide_unallocated == "enforce" else None

    def _visible(self, asked: Asked) -> bytes | None:
        """What the visible variable says of the allocation; None where there shall be none."""
        if not self.kind.write_env or not self.kind.visible_env:
            return None
        first = next((env.value for env in asked.envs if env.name == self.kind.visible_env), None)
        if first is not None and first.decode(errors="replace") in self.kind.strip_mount_prefix:
            return first  # the plugin names the cards by mounts
        value = visible_value(self.kind, self.given.ids, self.stock)
        return first if value is None else value  # the plugin's comes before the pod's own

    def _rewritten(self, asked: Asked, wanted: bytes | None) -> Asked:
        """*asked* with the visible variable exactly once, or not at all, and without what asks for more."""
        kind, managed = self.kind, self._managed()
        entries = [env.value for env in managed if env.name == kind.visible_env]
        fine = not entries if wanted is None else entries == [wanted]
        gone = {env for env in managed if env.name != kind.visible_env or not fine}
        envs = tuple(env for env in asked.envs if env not in gone) if gone else asked.envs
        if not fine and wanted is not None:
            envs = (*envs, EnvVar(kind.visible_env, wanted))
        mounts = asked.mounts
        if kind.strip_mount_prefix:
            kept = tuple([mount for mount in mounts if self._fits(mount.container_path)])
            mounts = mounts if len(kept) == len(mounts) else kept
        if envs is asked.envs and mounts is asked.mounts:
            return asked
        return replace(asked, envs=envs, mounts=mounts)

    def _without_own(self, asked: Asked, wanted: bytes | None) -> Asked:
        """*asked* without what asks for something else than was given; the rest stays as it is."""
        gone = self._own(wanted)
        envs = tuple([env for env in asked.envs if env not in gone])
        mounts = tuple([mount for mount in asked.mounts if self._fits(mount.container_path)])
        return replace(asked, envs=envs, mounts=mounts)

    def _managed(self) -> list[EnvVar]:
        """The variables that the class manages, be it the visible one or one that is stripped."""
        kind, beside = self.kind, self.kind.beside_env if self.given.given is Given.CARDS else ()
        return [
            env for env in self.near if env.name == kind.visible_env or (kind.strips(env.name) and env not in beside)
        ]

    def _fits(self, container_path: str) -> bool:
        """Whether a mount there asks for no more than was given."""
        name = self.kind.asked_by_mount(container_path)
        beside = self.kind.beside_mounts if self.given.given is Given.CARDS else ()
        return name is None or name in self.given.ids or name in beside

    def _tampered(self, asked: Asked, wanted: bytes | None) -> list[str]:
        """Names of what asks for something else than was given: the pod's own, since plugins ask for what they gave."""
        mounts = [f"mount {path}" for path, _ in asked.mounts if not self._fits(path)]
        return list(dict.fromkeys([*(env.name for env in self._own(wanted)), *mounts]))

    def _own(self, wanted: bytes | None) -> list[EnvVar]:
        """The variables that ask for something else than was given."""
        visible = self.kind.visible_env
        return [env for env in self._managed() if env.name != visible or not self._is_fine(env.value, wanted)]

    def _is_fine(self, value: bytes, wanted: bytes | None) -> bool:
        """Whether the visible variable with *value* shows what was given, be it in other words, or nothing."""
        if value in (wanted, self.kind.hide_value.encode()):
            return True
        words = value.decode(errors="replace").split(",")
        cards = [self.stock.card(self.kind, word) for word in words]
        given = {self.stock.card(self.kind, each) for each in self.given.ids}
        return None not in cards and given == set(cards)

    def _with_nodes(self, asked: Asked) -> Boundary:
        """*asked* with the nodes of the allocated cards."""
        if not self.kind.per_device:
            return Boundary(asked)
        cards = [card for each in self.given.ids if (card := self.stock.card(self.kind, each))]
        own = [node for card in cards for node in card.nodes]
        wanted = [*own, *self.stock.shared] if own and self.rules.keep_access_on_update else []
        added = tuple(self._missing(asked, wanted))
        complete = replace(asked, devices=(*asked.devices, *added))
        if added:
            paths = ", ".join(node.host_path for node in added)
            text = f"criproxy added {paths}, so that updates of its cpuset do not take its cards away"
            return Boundary(complete, (self._found(Word.NODES_ADDED, text),))
        if not any(self.kind.is_card_node(node.host_path) for node in asked.devices):
            text = (
                "its create has no device node of the card: an update of its cpuset or a reload of systemd may take "
                "the card away"
            )
            if not self.rules.update_without_nodes:
                text += ", so criproxy leaves it where it is"
            return Boundary(asked, (self._found(Word.NO_NODES, text),))
        return Boundary(asked)

    def _missing(self, asked: Asked, paths: Iterable[str]) -> Iterator[DeviceNode]:
        present = {path for node in asked.devices for path in (node.container_path, node.host_path)}
        for path in dict.fromkeys(paths):
            if path not in present:
                yield DeviceNode(path, path, self.kind.permissions)

    def _override(self, tampered: list[str]) -> Finding:
        text = f"it asks for more than was allocated to it, with {', '.join(tampered)}, which criproxy leaves unchanged"
        return self._found(Word.OVERRIDE, text)

    def _stripped(self, tampered: list[str]) -> Iterator[Finding]:
        if tampered:
            text = f"it asked for more than was allocated to it: criproxy removed {', '.join(tampered)}"
            yield self._found(Word.STRIPPED, text)

    def _found(self, word: Word, text: str) -> Finding:
        return Finding(self.kind.name, word, f"{self.kind.name}: {text}")

    @property
    def _variable(self) -> str:
        return self.kind.visible_env or "device mounts"
