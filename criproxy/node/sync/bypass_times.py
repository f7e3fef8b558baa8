"""The times of bypasses by an operator: containers created then are placed later, unlike those of other clients."""

from dataclasses import dataclass, field
from time import time

GRACE_S = 120.0
"""How long after the bypass a call may end: the kubelet's ``runtimeRequestTimeout``."""
KEPT = 64
"""Bypasses whose times are remembered."""


@dataclass(slots=True)
class BypassTimes:
    """The times of bypasses, in seconds since the epoch."""

    _ended: list[tuple[float, float]] = field(default_factory=list)
    _since_s: float | None = None

    def begin(self) -> None:
        """Record that a bypass begins."""
        self._since_s = time() if self._since_s is None else self._since_s

    def end(self) -> None:
        """Record that the bypass ends."""
        if self._since_s is not None:
            self._ended = [*self._ended[-KEPT + 1 :], (self._since_s, time())]
            self._since_s = None

    def cover(self, at_s: float) -> bool:
        """Whether a container created at *at_s* may have been created during a bypass."""
        if self._since_s is not None and at_s >= self._since_s:
            return True
        return any(since_s <= at_s <= until_s + GRACE_S for since_s, until_s in self._ended)
