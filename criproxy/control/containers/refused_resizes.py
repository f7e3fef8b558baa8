"""Resizes for which there is no room: said once, counted, and shown until the container has what it should have.

The node remembers the sizes (`Container.desired`); what the kubelet was told, and how often, is known here only, so it
begins anew with each start of criproxy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import time

from criproxy.model.node import Node
from criproxy.model.notices import Refusal
from criproxy.model.workload import Container, Sizes
from criproxy.observe.logger import Log


@dataclass(slots=True)
class RefusedResizes:
    """What the kubelet was told about the resizes of containers that are still there, by key."""

    _told: dict[str, Refusal] = field(default_factory=dict)
    _since_s: float = field(default_factory=time)
    """Since when the kubelet is listened to."""

    def add(self, node: Node, container: Container, sizes: Sizes, text: str) -> bool:
        """Count one; whether it is another one than the kubelet has repeated so far, also before our start.

        Those of containers that are not on *node* any more are forgotten.
        """
        self._told = {key: self._told[key] for key in self._told.keys() & node.containers.keys()}
        before = self._told.get(container.key)
        is_new = container.desired is None or container.desired.sizes != sizes
        times = before.times + 1 if before and not is_new else 1
        self._told[container.key] = Refusal(container.title, text, times, time())
        return is_new

    def told(self, node: Node) -> Mapping[str, Refusal]:
        """By key of a container of *node* that has not got its size since."""
        there = node.containers
        return {key: each for key, each in self._told.items() if key in there and there[key].desired}

    def silent(self, containers: Iterable[Container], now_s: float, silence_s: float) -> list[str]:
        """The keys of those whose resize the kubelet has not repeated for so long: somebody took it back.

        It makes no call for a pod that asks again for what it has.
        """
        told = self._told
        waiting = (one for one in containers if one.desired and not one.desired.told)
        heard_s = {one.key: told[one.key].at_s if one.key in told else self._since_s for one in waiting}
        return [key for key, at_s in heard_s.items() if now_s - at_s > silence_s]


def warn(log: Log, container: Container, sizes: Sizes, error: Exception) -> None:
    """The one line of the log about a refused resize."""
    log.warning("resize refused", container=container.key, title=container.title, error=str(error), **_asked(sizes))


def _asked(sizes: Sizes) -> dict[str, object]:
    asked: dict[str, object] = {"cpu_milli": sizes.cpu_milli}
    if sizes.memory_limit_bytes is not None:
        asked["memory_limit_bytes"] = sizes.memory_limit_bytes
    return asked
