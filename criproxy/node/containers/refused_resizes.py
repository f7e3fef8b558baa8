"""Resizes for which there is no room: logged once, counted, and shown until the container has its desired size.

The node has the sizes (`Container.desired`); the answers to the kubelet and their number are only in memory here, so
they start from zero with each start of criproxy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import time

from criproxy.model.node import Node
from criproxy.model.text.notices import Refusal
from criproxy.model.workload import Container, Sizes
from criproxy.process.logger import Log


@dataclass(slots=True)
class RefusedResizes:
    """The last refusal of a resize of each container, by key."""

    _refusals: dict[str, Refusal] = field(default_factory=dict)
    _since_s: float = field(default_factory=time)
    """When criproxy began to hold resizes, in seconds since the epoch."""

    def add(self, node: Node, container: Container, sizes: Sizes, text: str) -> bool:
        """Count a refused resize, and return whether it is new: the kubelet repeats them, also after our restart.

        Refusals of containers that are no longer on *node* are dropped.
        """
        self._refusals = {key: self._refusals[key] for key in self._refusals.keys() & node.containers.keys()}
        before = self._refusals.get(container.key)
        is_new = container.desired is None or container.desired.sizes != sizes
        times = before.times + 1 if before and not is_new else 1
        self._refusals[container.key] = Refusal(container.title, text, times, time())
        return is_new

    def pending(self, node: Node) -> Mapping[str, Refusal]:
        """Return the refusals of containers of *node* that do not have their desired size yet, by container key."""
        there = node.containers
        return {key: each for key, each in self._refusals.items() if key in there and there[key].desired}

    def silent(self, containers: Iterable[Container], now_s: float, silence_s: float) -> list[str]:
        """Return the keys of containers whose resize the kubelet has not repeated for *silence_s*: it was taken back.

        The kubelet sends no call for a pod that requests its present size again.
        """
        refusals = self._refusals
        waiting = (one for one in containers if one.desired and not one.desired.told)
        last_s = {one.key: refusals[one.key].at_s if one.key in refusals else self._since_s for one in waiting}
        return [key for key, at_s in last_s.items() if now_s - at_s > silence_s]


def warn(log: Log, container: Container, sizes: Sizes, error: Exception) -> None:
    """Log a refused resize."""
    log.warning("resize refused", container=container.key, title=container.title, error=str(error), **_asked(sizes))


def _asked(sizes: Sizes) -> dict[str, object]:
    asked: dict[str, object] = {"cpu_milli": sizes.cpu_milli}
    if sizes.memory_limit_bytes is not None:
        asked["memory_limit_bytes"] = sizes.memory_limit_bytes
    return asked
