"""Exclusive CPUs of pods whose sandboxes ended: the next sandbox of the same pod gets them back if it starts soon.

If a pod's sandbox is killed, the kubelet stops it and runs another one within milliseconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.placement.rules.kept import by_name

INHERIT_S = 10.0
"""How long after the end of the former sandbox a new one inherits."""


@dataclass(slots=True)
class Inheritance:
    """Remembers the CPUs of ended sandboxes for a short time.

    Args:
        clock: a monotonic clock, in seconds.
    """

    clock: Callable[[], float] = monotonic
    _left: dict[str, tuple[float, Mapping[str, CpuSet]]] = field(default_factory=dict)
    """By UID of the pod: when its sandbox ended, and the CPUs that it had then, by container name."""

    def ended(self, node: Node, key: str) -> None:
        """Record that the sandbox *key* ends; *node* is the state before that. The last end counts."""
        pod, now_s = node.pods.get(key), self.clock()
        self._left = {uid: left for uid, left in self._left.items() if now_s - left[0] <= INHERIT_S}
        if pod is None or not pod.uid:
            return
        had = {**self.of(pod.uid), **by_name(node, pod.uid)}
        if had:
            self._left[pod.uid] = now_s, had

    def of(self, uid: str) -> Mapping[str, CpuSet]:
        """Return the CPUs that a new sandbox of the pod *uid* inherits now, by container name."""
        at_s, had = self._left.get(uid, (0.0, {}))
        return had if self.clock() - at_s <= INHERIT_S else {}
