"""The bars of figures, and what a bar is on this machine now."""

from dataclasses import dataclass

REFERENCE_US = {"Version": 175.0, "ListContainers": 280.0}
"""What a direct call took on the machine of the bars: Version, and ListContainers of 100 containers (69 kB)."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The most that a figure may be, in its unit; times grow with the machine's own slowness."""

    limit: float
    scaled_by: str | None = "Version"
    """A key of `REFERENCE_US`; None for what does not depend on the machine's speed."""


ADDED_US = {
    ("Version", 0): Bar(70),
    ("Version", 100): Bar(70),
    ("Version", 1000): Bar(70),
    ("ListContainers", 100): Bar(110, "ListContainers"),
    ("CreateContainer", 100): Bar(600),
    ("CreateContainer", 1000): Bar(1200),
}
"""Method and known containers → what criproxy may add to the median call, in µs."""

CPU_US = {
    ("Version", 0): Bar(75),
    ("Version", 100): Bar(75),
    ("Version", 1000): Bar(75),
    ("ListContainers", 100): Bar(90, "ListContainers"),
}
"""Method and known containers → CPU that criproxy may use for a call, in µs."""

ADDED_P99_US = Bar(3000)
"""What criproxy may add to the p99 of a create with 100 containers known, and of Version during 20 creates a second."""
LIFE_CPU_US = Bar(1500)
"""CPU time of a create and a removal, with all that follows from them, with 100 containers known."""
LIFE_WRITTEN_KB = Bar(15, None)
"""What both make the kernel write."""
WAKEUPS_PER_S, REST_PERCENT, THREADS = Bar(5, None), Bar(0.05), Bar(8, None)
"""Of a process with 100 containers to which nothing happens; percent of one core."""
START_S = Bar(0.1)
"""From exec to the first answer, with 100 containers known."""
FIRST_CREATE_S = Bar(0.4)
"""From exec to the answer to a create that was waiting."""
FEW_MIB, FEW_UNSHARED_MIB = Bar(57.2, None), Bar(36, None)
"""Resident and private, with 100 containers known."""
MEMORY_MIB = Bar(100, None)
"""Resident, with 1,000 containers known."""
MEMORY_GROWTH_MIB = Bar(20, None)
"""Resident, with 1,000 containers known, less that without any."""

STEP_MEDIAN_MS, STEP_P99_MS = 2.0, 5.0
"""CPU time of one step of the engine, on 384 CPUs with 500 containers."""
MEMORY_MS = 1.0
"""The part of it that memory may take at the median, with 500 limits on 8 NUMA nodes."""

DEVICES_MS = 0.3
"""What rules about devices may add to a CreateContainer at the median, once the kubelet has told what it allocated."""

WHOLE_MS, WHOLE_P99_MS = 3.0, 15.0
"""What criproxy may add to a whole create, with a card or without, all in one process."""

CLASSES = {
    ("create", "added"): 200.0,
    ("create", "CPU added"): 200.0,
    ("at rest", "CPU added"): 0.2,
    ("20 creates, service stopped", "delayed"): 0,
    ("20 starts, service stopped", "delayed"): 1,
    ("20 starts, service stopped", "longest"): 300.0,
}
"""What classes may add with 1,000 containers: µs of a create and of the daemon's CPU time for it, percent of a core of
daemon and service together; and how many calls a service that does not answer may delay, and for how many ms."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How slow this machine is now: direct median over reference, per key of `REFERENCE_US`."""

    factors: dict[str, float]

    def limit(self, bar: Bar) -> float:
        """The bar as it holds here and now."""
        return bar.limit * self.factors.get(bar.scaled_by, 1.0) if bar.scaled_by else bar.limit


UNSCALED = Speed({})
"""Where the direct medians say nothing of the machine, since the runtime is not the one of the reference."""
