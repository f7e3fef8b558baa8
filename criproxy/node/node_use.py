"""The use of the node's CPUs and memory by all processes: read from /proc on request."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.host.cpu_times import read_memory_use, read_node_time

WINDOW_S = 10.0
"""The period over which the use of CPUs is averaged, as far as there are samples."""
SHORTEST_S = 0.5
"""The shortest meaningful period; also the shortest time between two samples."""
KEPT_S = 60.0


@dataclass(slots=True, repr=False)
class NodeUse:
    """Keeps a few samples; the first one is taken at construction."""

    host_root: Path = Path("/")
    """Prefix of /proc."""
    clock: Callable[[], float] = time.monotonic
    _samples: deque[tuple[float, float, float]] = field(default_factory=deque)
    """Time of the sample, and busy and total CPU time since the boot."""

    def __post_init__(self) -> None:
        self.cpu_ratio()

    def cpu_ratio(self) -> float | None:
        """Return the busy part of the CPU time of the last seconds, from 0 to 1; None if unknown."""
        sample = self._sample()
        if sample is None:
            return None
        now_s, busy, total = sample
        while self._samples and now_s - self._samples[0][0] > KEPT_S and len(self._samples) > 1:
            self._samples.popleft()
        old = [each for each in self._samples if now_s - each[0] >= WINDOW_S][-1:] or [*self._samples][:1]
        if not self._samples or now_s - self._samples[-1][0] >= SHORTEST_S:
            self._samples.append(sample)
        if not old or now_s - old[0][0] < SHORTEST_S or total <= old[0][2]:
            return None
        return min(max((busy - old[0][1]) / (total - old[0][2]), 0.0), 1.0)

    def memory_ratio(self) -> float | None:
        """Return the part of the memory that is not available without swapping, from 0 to 1; None if unknown."""
        use = read_memory_use(self.host_root)
        return min(max(1 - use.available_bytes / use.total_bytes, 0.0), 1.0) if use and use.total_bytes else None

    def _sample(self) -> tuple[float, float, float] | None:
        spent = read_node_time(self.host_root)
        return None if spent is None else (self.clock(), spent.busy, spent.total)
