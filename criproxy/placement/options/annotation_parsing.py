"""The annotations of pods, read for policies: typed, and only those that the pod's namespace may use.

A value that cannot be understood refuses the container with a sentence. A key that the namespace may not use is
ignored, which the reasons of the decision say.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import TypeVar

from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.text.annotations import DOMAINS, MAX_VALUE_CHARS, effective
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import Container
from criproxy.placement.options.annotation_keys import may_use
from criproxy.placement.options.plain import MAX_NODES, plain_data, read_document
from criproxy.placement.options.policy_options import Options
from criproxy.placement.options.unheeded import annotation_notes

T = TypeVar("T")

POD_WIDE = frozenset({"affinity", "anti-affinity"})
"""Keys whose value says for which containers it is."""

MAX_YAML_CHARS = 8192
"""Of all values that are read as YAML for one container: no other call is answered meanwhile."""
_MAX_WHY_CHARS = 400
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class TooMuchYamlError(ValueError):
    """A pod has longer documents for one container than are read."""


@dataclass(slots=True)
class Wishes:
    """The annotations of one container's pod, as far as they are about it.

    Args:
        node: where the pod is.
        container: whose.
        options: of the policy; they say which annotations may be used.
    """

    node: Node
    container: Container
    options: Options = field(default_factory=Options)
    ignored: list[str] = field(default_factory=list)
    """A sentence for each annotation that was there and may not be used."""
    _yaml: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By annotation that has been read as YAML: its characters and parts."""
    annotations: Mapping[str, str] = field(init=False)
    """All of the pod."""

    def __post_init__(self) -> None:
        pod = self.node.pods.get(self.container.pod)
        self.annotations = pod.annotations if pod else {}

    def may(self, key: str) -> bool:
        """Whether the pod may use the annotation *key*."""
        rules = self.options.annotations
        return may_use(self.container.namespace, key, rules.allow, rules.deny)

    def allows(self, name: str, key: str) -> bool:
        """Whether the pod may use *key*, as it has in the annotation *name*; if not, there is a sentence about it."""
        if not (allowed := self.may(key)):
            self.ignored.append(f"annotation {name} is ignored: namespace {self.container.namespace} may not use {key}")
        return allowed

    def notes(self) -> tuple[str, ...]:
        """A sentence for each annotation that was there and had no effect, as far as has been read."""
        if not self.annotations:
            return tuple(dict.fromkeys(self.ignored))
        classes = getattr(self.options, "classes", None) is not None
        unread = annotation_notes(self.annotations, self.container.name, classes=classes)
        return (*dict.fromkeys(self.ignored), *unread)

    def boolean(self, key: str) -> bool | None:
        """The boolean value of *key*; None without one; raises BadAnnotation."""
        return self.read(key, _boolean) if self.annotations else None

    def text(self, key: str) -> str | None:
        """The value of *key*; None without one."""
        return self.read(key, str.strip)

    def read(self, key: str, convert: Callable[[str], T]) -> T | None:
        """The value of *key* as *convert* reads it; None without one.

        Args:
            key: without domain and scope, such as ``memory-type``.
            convert: raises ValueError with what would be right.

        Raises:
            BadAnnotation: the value cannot be understood.
        """
        if not self.annotations or (name := self._written(key)) is None:
            return None
        if not self.allows(name, key):  # before anything of it is read
            return None
        try:
            found = written(self.annotations, key, self.container.name, self._plain_data)
            if found is None:
                return None
            name, value = found
            return convert(_short(value))
        except ValueError as error:
            why = bounded_text(str(error), _MAX_WHY_CHARS)
        except Exception:  # noqa: BLE001 (the text of one pod does not make the policy faulty)
            why = "criproxy cannot read it; write it plainly"
        raise BadAnnotation(f"container {self.container.title}: annotation {name} is invalid: {why}")

    def scope(self, key: str) -> int:
        """The scope of the annotation about *key*: 0 for this container, 1 for its pod, 2 for all others or none."""
        scope = (self._written(key) or "").partition("/")[2]
        return 0 if scope.startswith("container.") else 1 if scope == "pod" else 2

    def name_of(self, key: str) -> str:
        """The name of the annotation about *key* as its pod has written it; *key* without one."""
        return self._written(key) or key

    def document(self, key: str, convert: Callable[[object], T]) -> T | None:
        """The value of *key* as *convert* reads the plain data of its YAML; None without one."""
        return self.read(key, lambda text: convert(self._plain_data(key, text)))

    def _plain_data(self, name: str, text: str) -> object:
        """What the YAML in *text* says, the value of the annotation *name*, as long as there is not too much of it."""
        others = [size for other, size in self._yaml.items() if other != name]
        chars = len(_short(text))
        _check_yaml(chars + sum(size[0] for size in others), "characters", MAX_YAML_CHARS)
        document = read_document(text)
        _check_yaml(document.parts + sum(size[1] for size in others), "parts", MAX_NODES)
        self._yaml[name] = chars, document.parts
        return document.data

    def _written(self, key: str) -> str | None:
        """The name of the first annotation that may be about *key*; its value has not been read."""
        found = effective(self.annotations, key, self.container.name)
        return found[0] if found else next(_old_names(self.annotations, key), None)


def _check_yaml(count: int, what: str, most: int) -> None:
    if count > most:
        values = "the values that are read as YAML for this container"
        raise TooMuchYamlError(f"{values} have {count} {what} together, and {most} is the most")


def _uncounted(_name: str, text: str) -> object:
    return plain_data(_short(text))


def written(
    annotations: Mapping[str, str], key: str, container: str, data_of: Callable[[str, str], object] = _uncounted
) -> tuple[str, str] | None:
    """The name and the value of the annotation that says *key* for a *container* of a pod, in whatever form.

    Args:
        annotations: all of the pod.
        key: without domain and scope.
        container: its name in the pod.
        data_of: reads the YAML in the value of an annotation, by its name and the value.
    """
    return effective(annotations, key, container) or _old_form(annotations, key, container, data_of)


def _short(text: str) -> str:
    if len(text) > MAX_VALUE_CHARS:
        raise ValueError(f"it has more than {MAX_VALUE_CHARS} characters")
    return text


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{text!r} must be true or false")
    return value


def _old_names(annotations: Mapping[str, str], key: str) -> Iterator[str]:
    """The names ``DOMAIN/KEY`` that are there, the first that counts first."""
    return (name for domain in DOMAINS if (name := f"{domain}/{key}") in annotations)


def _old_form(
    annotations: Mapping[str, str], key: str, container: str, data_of: Callable[[str, str], object]
) -> tuple[str, str] | None:
    """The annotation ``DOMAIN/KEY``: for `POD_WIDE` keys the only form of CRI-RM, for others a map of containers."""
    for name in _old_names(annotations, key):
        if key in POD_WIDE:
            return name, annotations[name]
        try:
            data = data_of(name, annotations[name])
        except TooMuchYamlError:
            raise
        except ValueError:
            return name, annotations[name]
        if not isinstance(data, Mapping):
            return name, annotations[name]
        if container in data:
            value = data[container]
            return name, value if isinstance(value, str) else dumps(value)
    return None
