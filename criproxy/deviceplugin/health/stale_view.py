"""When the program that watches GPUs is replaced, since NVML has a stale view of them in its process."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

from criproxy.process.backoff import Backoff

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 600.0
"""Between two replacements, while new processes contradict each other, too."""


@dataclass(slots=True)
class StaleView:
    """Compares what the program says with the inventory, for which each query of NVML is a new process.

    After a reset of a GPU, NVML may call it lost for as long as the process runs that has found it lost.

    Args:
        clock: the clock of `Inventory.answered_s`.
    """

    clock: Callable[[], float] = monotonic
    _since_s: dict[str, float] = field(default_factory=dict)
    """By GPU, since when this run of the program has said that it does not work."""
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    _next_s: float = float("-inf")
    """The earliest time of the next replacement."""

    def contradicted(
        self, faults: Mapping[str, str], working: Collection[str], answered_s: float | None
    ) -> tuple[str, ...]:
        """Return the GPUs because of which the program is to be replaced now.

        Args:
            faults: what the program says now: why GPUs do not work, by UUID; empty if they do.
            working: the GPUs that work according to the inventory.
            answered_s: when the query of the inventory began; None: NVML has not answered it.
        """
        now_s = self.clock()
        self._since_s = {gpu: self._since_s.get(gpu, now_s) for gpu, fault in faults.items() if fault}
        if not self._since_s:
            self._backoff.reset()
        found = tuple(gpu for gpu, since_s in self._since_s.items() if gpu in working and since_s < (answered_s or 0.0))
        if not found or now_s < self._next_s:
            return ()
        self._next_s, self._since_s = now_s + self._backoff.pause_s(), {}
        return found
