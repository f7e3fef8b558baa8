"""What workload owners write in annotations, read for policies: typed, and only where their namespace may say it.

A value that cannot be understood refuses the container with a sentence. A key that the namespace may not use counts as
not written; the reasons of the decision tell it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from criproxy.errors import BadAnnotation
from criproxy.model.annotations import effective
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.policy.keys import RESTRICTED

T = TypeVar("T")

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(slots=True)
class Wishes:
    """The annotations of one container's pod, as far as they are about it.

    Args:
        node: where the pod is.
        container: whose.
        allowed: namespace pattern → keys (both with * and ?) that may be used there; empty: all but `RESTRICTED`.
    """

    node: Node
    container: Container
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    """A sentence for each annotation that was there and may not be used."""

    def boolean(self, key: str) -> bool | None:
        """Whether *key* is wished for; None where nothing is said; raises BadAnnotation."""
        return self.read(key, _boolean)

    def words(self, key: str) -> tuple[str, ...] | None:
        """The comma-separated words of *key*; None where nothing is said."""
        return self.read(key, lambda text: tuple(word.strip() for word in text.split(",") if word.strip()))

    def text(self, key: str) -> str | None:
        """The value of *key*; None where nothing is said."""
        return self.read(key, str.strip)

    def read(self, key: str, convert: Callable[[str], T]) -> T | None:
        """The value of *key* as *convert* reads it; None where nothing is said.

        Args:
            key: without domain and scope, such as ``memory-type``.
            convert: raises ValueError with what would be right.

        Raises:
            BadAnnotation: the value cannot be understood.
        """
        pod = self.node.pods.get(self.container.pod)
        found = effective(pod.annotations, key, self.container.name) if pod else None
        if found is None:
            return None
        name, value = found
        if not self._may_use(key):
            self.ignored.append(f"annotation {name} is ignored: namespace {self.container.namespace} may not use {key}")
            return None
        try:
            return convert(value)
        except ValueError as error:
            raise BadAnnotation(
                f"container {self.container.title}: annotation {name} cannot be understood: {error}"
            ) from None

    def _may_use(self, key: str) -> bool:
        if not self.allowed:
            return key not in RESTRICTED
        return any(
            fnmatchcase(self.container.namespace, namespace) and any(fnmatchcase(key, pattern) for pattern in keys)
            for namespace, keys in self.allowed.items()
        )


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{text!r} must be true or false")
    return value
