"""What pods had when their sandboxes ended: the next sandbox of the same pod, if it comes soon, gets it back.

Where a pod's sandbox is killed, the kubelet stops it and runs another one within milliseconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from criproxy.engine.kept import by_name
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node

INHERIT_S = 10.0
"""After the end of its sandbox before, a sandbox inherits."""


@dataclass(slots=True)
class Inheritance:
    """Remembers for a short time.

    Args:
        clock: seconds that only grow.
    """

    clock: Callable[[], float] = monotonic
    _left: dict[str, tuple[float, Mapping[str, CpuSet]]] = field(default_factory=dict)
    """By uid of the pod: when its sandbox ended, and what it had then, by name of the container."""

    def ended(self, node: Node, key: str) -> None:
        """The sandbox *key* ends; *node* is the one before that. The last end counts."""
        pod, now_s = node.pods.get(key), self.clock()
        self._left = {uid: left for uid, left in self._left.items() if now_s - left[0] <= INHERIT_S}
        if pod is None or not pod.uid:
            return
        had = {**self.of(pod.uid), **by_name(node, pod.uid)}
        if had:
            self._left[pod.uid] = now_s, had

    def of(self, uid: str) -> Mapping[str, CpuSet]:
        """What a sandbox of the pod *uid* that comes now inherits, by name of the container."""
        at_s, had = self._left.get(uid, (0.0, {}))
        return had if self.clock() - at_s <= INHERIT_S else {}
