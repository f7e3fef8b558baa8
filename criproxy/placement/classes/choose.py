"""Which class a container has, for each kind: by annotations of its pod, its namespace, its pool, or its QoS class.

An annotation about the container comes before one about its pod, and one about the kind (``cpu-class``) before
``class``, which is about all kinds that the class has. Peers' keys mean the same as ours, and are allowed with ours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from re import fullmatch
from typing import NamedTuple

from criproxy.errors import BadAnnotation
from criproxy.model.controls import KINDS
from criproxy.model.text.annotations import effective
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.classes.table import NAMESPACE, POOL, QOS, Table
from criproxy.placement.options.annotation_keys import matches_one
from criproxy.placement.options.annotation_parsing import Wishes, written
from criproxy.placement.options.class_rules import C_STATES, CPU_QUOTA, GOVERNOR, IRQ_BALANCING, anonymous, type_of

CLASS = "class"
KEYS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu-class",),
    "memory": ("memory-class",),
    "blockIO": ("blockio-class", "blockioclass"),
    "rdt": ("rdt-class", "rdtclass"),
    "scheduling": ("scheduling-class",),
    "irq": ("irq-class",),
}
"""Kind → keys of its annotations in our domains; the first one is the key in ``annotations.allow``."""
_OF_RUNTIMES = {"rdt": "rdt.resources.beta.kubernetes.io", "blockIO": "blockio.resources.beta.kubernetes.io"}
"""Kind → the prefix of annotations from which a runtime may take its own classes."""
_MEMORY_QOS = "class.memory-qos.nri.io"
_CRIO = ".crio.io"
_SETTINGS = {CPU_QUOTA: "cpu", C_STATES: "cpu", GOVERNOR: "cpu", IRQ_BALANCING: "irq"}
"""Setting of an anonymous class → its kind."""
_NO_EFFECT = "cpu-load-balancing.crio.io"
_WORDS = {"disable": "disable", "true": "disable", "housekeeping": "disable", "enable": "", "false": ""}
_ABOUT = (CLASS, _CRIO, *_OF_RUNTIMES.values())
_MAX_NAMED, _MAX_SHOWN = 8, 60


class Chosen(NamedTuple):
    """The class of one kind that a container has, and why."""

    name: str
    why: str


class _Said(NamedTuple):
    name: str
    """Of an annotation, in full."""
    value: str
    scope: int
    """0: about the container; 1: about the pod."""
    of_runtime: bool = False


@dataclass(slots=True)
class Choice:
    """The choice for one container."""

    table: Table
    pool: str
    wishes: Wishes
    container: Container = field(init=False)
    annotations: Mapping[str, str] = field(init=False)
    """Those that can be about classes."""

    def __post_init__(self) -> None:
        self.container, said = self.wishes.container, self.wishes.annotations
        self.annotations = {name: value for name, value in said.items() if any(part in name for part in _ABOUT)}

    def made(self) -> dict[str, Chosen]:
        """Return the classes by kind; an anonymous class has settings beside those of the class before it.

        Raises:
            BadAnnotation: as `class_rules.ClassRules.controls_of`.
        """
        named = {kind: self._named(kind) for kind in KINDS} if self.annotations else {}
        chosen = {kind: named.get(kind) or self._by_rule(kind) for kind in KINDS}
        if self.annotations:
            chosen |= self._with_settings(chosen)
        return {kind: each for kind, each in chosen.items() if each}

    def _named(self, kind: str) -> Chosen | None:
        """Return the class that an annotation names; raises BadAnnotation."""
        said = sorted(self._about(kind), key=lambda each: each.scope)
        for each in said if said and self.wishes.allows(said[0].name, KEYS[kind][0]) else ():
            name = each.value.strip()
            if name in self.table.classes and getattr(self.table.classes[name], kind) is not None:
                return Chosen(name, f"annotation {each.name}")
            if each.of_runtime:
                text = f"annotation {each.name} names no class of criproxy: only the runtime may know it"
                self.wishes.ignored.append(text)
                continue
            self._wrong(each.name, _unknown(name, [*self.table.having(kind)], f"with {kind}"))
        found = effective(self.annotations, CLASS, self.container.name)
        if found is None or not self.wishes.allows(found[0], CLASS):
            return None
        name = found[1].strip()
        if name not in self.table.classes:
            self._wrong(found[0], _unknown(name, [*self.table.classes], ""))
            return None
        return Chosen(name, f"annotation {found[0]}") if getattr(self.table.classes[name], kind) is not None else None

    def _about(self, kind: str) -> Iterator[_Said]:
        container = self.container.name
        unread = {} if self.wishes.may(KEYS[kind][0]) else {"data_of": _unread}
        for key in KEYS[kind]:
            if found := written(self.annotations, key, container, **unread):
                yield _Said(*found, scope=int(not found[0].endswith(f"/container.{container}")))
        runtime = _OF_RUNTIMES.get(kind, "")
        for scope, name in enumerate((f"{runtime}/container.{container}", f"{runtime}/pod") if runtime else ()):
            if name in self.annotations:
                yield _Said(name, self.annotations[name], scope, of_runtime=True)
        for scope, name in enumerate((f"{_MEMORY_QOS}/{container}", _MEMORY_QOS) if kind == "memory" else ()):
            if name in self.annotations:
                yield _Said(name, self.annotations[name], scope)

    def _by_rule(self, kind: str) -> Chosen | None:
        texts = {NAMESPACE: self.container.namespace, POOL: type_of(self.pool), QOS: self.container.qos.value}
        for by, text in texts.items():
            for rule in self.table.rules:
                if rule.kind == kind and rule.by == by and text and matches_one(text, (rule.pattern,)):
                    known = self.table.classes.get(rule.name)  # without any class of the kind, options may name some
                    return Chosen(rule.name, f"its {by} {text}") if known and getattr(known, kind) else None
        return None

    def _with_settings(self, chosen: Mapping[str, Chosen | None]) -> dict[str, Chosen]:
        """Return the anonymous classes of the kinds for which an annotation changes single settings."""
        settings: dict[str, dict[str, str]] = {}
        for key, kind in _SETTINGS.items():
            name = f"{key}{_CRIO}"
            if name in self.annotations and self.wishes.allows(name, KEYS[kind][0]):
                try:
                    if value := self._setting(key, self.annotations[name].strip()):
                        settings.setdefault(kind, {})[key] = value
                except ValueError as error:
                    self._wrong(name, str(error))
        if _NO_EFFECT in self.annotations:
            self.wishes.ignored.append(f"annotation {_NO_EFFECT} has no effect: only CRI-O can act on it")
        found = {}
        for kind, values in settings.items():
            base, why = chosen[kind] or Chosen("", "")
            keys = " and ".join(f"{key}{_CRIO}" for key in values)
            found[kind] = Chosen(anonymous(base, values), f"{why}, and {keys}" if why else f"annotation {keys}")
        return found

    def _setting(self, key: str, value: str) -> str:
        """Return the value for an anonymous class; empty if the annotation changes nothing; raises ValueError."""
        governors = self.table.machine.governors
        if key == C_STATES:
            if value not in ("enable", "disable") and not fullmatch(r"max_latency:[0-9]{1,9}", value):
                raise ValueError(f"must be enable, disable or max_latency:MICROSECONDS, not {_short(value)}")
            return value
        if key == GOVERNOR:
            if not fullmatch(r"[a-z_]{1,15}", value) or (governors and value not in governors):
                known = ", ".join(governors) or "such as performance"
                raise ValueError(f"must be a governor ({known}), not {_short(value)}")
            return value
        if value not in _WORDS:
            raise ValueError(f"must be disable or enable, not {_short(value)}")
        return _WORDS[value]

    def _wrong(self, name: str, why: str) -> None:
        """Refuse a container that is being created; for one that exists, only note that the annotation is ignored."""
        text = bounded_text(why, 400)
        if self.container.state is ContainerState.CREATING:
            raise BadAnnotation(f"container {self.container.title}: annotation {name} is invalid: {text}")
        self.wishes.ignored.append(f"annotation {name} is ignored: {text}")


def _unread(_name: str, _text: str) -> object:
    """In place of the data in a document; raises ValueError: then it is taken as it is."""
    raise ValueError


def _unknown(name: str, names: list[str], what: str) -> str:
    more = len(names) - _MAX_NAMED
    known = ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
    has = f"classes {what} are: {known}".replace("  ", " ") if names else f"no class is defined {what}".rstrip()
    return f"there is no class {_short(name)} {what}".rstrip() + f"; {has}"


def _short(text: str) -> str:
    return repr(text[:_MAX_SHOWN])
