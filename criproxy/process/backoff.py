"""Pauses between retries: they double, with jitter so that processes do not retry at the same time."""

import random
from dataclasses import dataclass

_JITTER = 0.2


@dataclass(slots=True)
class Backoff:
    """The pauses between retries of one operation."""

    first_s: float
    longest_s: float
    _next_s: float = 0.0

    def pause_s(self) -> float:
        """Return the next pause, and double the one after it, up to the longest."""
        pause_s = self._next_s or self.first_s
        self._next_s = min(2 * pause_s, self.longest_s)
        return pause_s * random.uniform(1 - _JITTER, 1)  # noqa: S311 (no secret)

    def reset(self) -> None:
        """Begin again with the first pause, after a success."""
        self._next_s = 0.0
