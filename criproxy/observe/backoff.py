"""Pauses between tries: they double, and no two processes make theirs at the same time."""

import random
from dataclasses import dataclass

_JITTER = 0.2


@dataclass(slots=True)
class Backoff:
    """The pauses of one thing that is tried again and again."""

    first_s: float
    longest_s: float
    _next_s: float = 0.0

    def pause_s(self) -> float:
        """How long to wait now; the next is twice as long, and none is longer than the longest."""
        pause_s = self._next_s or self.first_s
        self._next_s = min(2 * pause_s, self.longest_s)
        return pause_s * random.uniform(1 - _JITTER, 1)  # noqa: S311 (no secret)

    def reset(self) -> None:
        """It has worked: the next pause is the first."""
        self._next_s = 0.0
