"""How much of its CPUs and memory the node uses, all processes together: read from /proc when somebody asks."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WINDOW_S = 10.0
"""Over which the use of CPUs is averaged, as far as there are samples of it."""
SHORTEST_S = 0.5
"""Over less it says nothing; also the time between two samples that are kept."""
KEPT_S = 60.0
_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Columns of the line ``cpu``; what guests take is in other columns, too, so that those from `_GUEST` on are left."""


@dataclass(slots=True, repr=False)
class NodeUse:
    """Keeps a few samples; the first one is taken when it is made."""

    host_root: Path = Path("/")
    """Prefix of /proc."""
    clock: Callable[[], float] = time.monotonic
    _samples: deque[tuple[float, int, int]] = field(default_factory=deque)
    """When, and how many ticks of CPU time were busy, and how many there were, since the boot."""

    def __post_init__(self) -> None:
        self.cpu_ratio()

    def cpu_ratio(self) -> float | None:
        """Which part of the CPU time of the last seconds was busy, from 0 to 1; None where it is not known yet."""
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
        """Which part of the memory cannot be had without swapping, from 0 to 1; None where it is not known."""
        with suppress(OSError, ValueError, LookupError, ZeroDivisionError):
            lines = (self.host_root / "proc/meminfo").read_text().splitlines()
            amounts = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest}
            return min(max(1 - amounts["MemAvailable"] / amounts["MemTotal"], 0.0), 1.0)
        return None

    def _sample(self) -> tuple[float, int, int] | None:
        with suppress(OSError, ValueError, LookupError):
            with (self.host_root / "proc/stat").open() as stream:
                words = stream.readline().split()
            ticks = [int(each) for each in words[1 : 1 + _GUEST]]
            total = sum(ticks)
            return self.clock(), total - ticks[_IDLE] - ticks[_IOWAIT], total
        return None
