"""When calls passed by an ordered bypass: what was created then is placed afterwards, unlike what others started."""

from dataclasses import dataclass, field
from time import time

GRACE_S = 120.0
"""A call that passed may end after the bypass: so long does the kubelet wait (``runtimeRequestTimeout``)."""
KEPT = 64
"""Of so many bypasses the times are remembered."""


@dataclass(slots=True)
class BypassTimes:
    """Times in seconds since the epoch."""

    _ended: list[tuple[float, float]] = field(default_factory=list)
    _since_s: float | None = None

    def begin(self) -> None:
        """Calls pass from now on."""
        self._since_s = time() if self._since_s is None else self._since_s

    def end(self) -> None:
        """They are held again."""
        if self._since_s is not None:
            self._ended = [*self._ended[-KEPT + 1 :], (self._since_s, time())]
            self._since_s = None

    def cover(self, at_s: float) -> bool:
        """Whether a container that was created then may have come by a call that passed."""
        if self._since_s is not None and at_s >= self._since_s:
            return True
        return any(since_s <= at_s <= until_s + GRACE_S for since_s, until_s in self._ended)
