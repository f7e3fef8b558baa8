"""The counters of the controller: plain numbers, so that counting is cheap; `api.metrics` exports them.

These count events. The present state (unknown outcomes, free CPUs, containers not in place) is read from the node for
each request.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.host.container_use import read_memory_use, read_node_time
from criproxy.wire.stats import Histogram

DECISION_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
"""Upper bounds in seconds of the histogram of decision times."""
WINDOW_S = 10.0
"""The period over which the use of CPUs is averaged, as far as there are samples."""
SHORTEST_S = 0.5
"""The shortest meaningful period; also the shortest time between two samples."""
KEPT_S = 60.0


@dataclass(slots=True)
class Counters:
    """The counts since the start. Use only in the event loop's thread."""

    decisions: Counter[str] = field(default_factory=Counter)
    """Events that changed the node, by kind of event in snake case: ``container_creating``, …"""
    decision_times: Histogram = field(default_factory=lambda: Histogram(DECISION_BUCKETS_S))
    """The time that the engine and the policy took for creates and resizes."""
    policy_failures: int = 0
    """Events for which the policy raised an unexpected exception."""
    policy_faults: int = 0
    """Answers of an external policy that violated a rule and were not used."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Calls of the kubelet that were refused, by gRPC code: ``RESOURCE_EXHAUSTED``, …"""
    resizes_refused: int = 0
    """Refused resizes, including repetitions by the kubelet."""
    promotions: int = 0
    """Containers that were promoted."""
    unplaced_s: float = 0.0
    """For how long containers have run that nobody had placed, and that have got a place or ended since."""
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Held calls whose handler failed, by how they continued: ``shared``, ``pass``, ``refuse``."""
    updates_sent: int = 0
    """Updates that criproxy sent to the runtime."""
    updates_in_flight: int = 0
    """Updates that the runtime has not answered yet."""
    updates_failed: int = 0
    """Updates that it refused or did not answer; each is retried."""
    updates_lost: int = 0
    """Updates that it answered OK although the cgroup shows other values; each is retried."""
    drift_found: int = 0
    """Containers whose cgroup had another cpuset than the one that was applied."""
    drift_repaired: int = 0
    exits: Counter[str] = field(default_factory=Counter)
    """Ends of containers that were detected before a reply to the kubelet showed them, by source: ``events``,
    ``lists``, ``cgroups`` (which were gone). A runtime's event often arrives before its reply to StopContainer."""
    inquiries: int = 0
    """Calls that ended without an answer, whose outcome was queried."""
    adoptions: int = 0
    """Adopted containers: criproxy had not placed them."""
    resyncs: int = 0
    """Comparisons with the runtime that succeeded."""
    resync_failures: int = 0
    last_resync_s: float | None = None
    """When the last one succeeded, on the monotonic clock."""
    conflicts_repaired: int = 0
    """Exclusive CPUs that two containers had, found at a resync."""
    reloads_ok: int = 0
    reloads_failed: int = 0
    """Configurations that could not be used: the former one stays in force."""
    tries_ended: Counter[str] = field(default_factory=Counter)
    """Ended tries of a configuration, by what ended them: ``kept``, ``time`` (the former one came back), ``file`` (the
    policy file came into force), ``asked`` (somebody let the former one come back)."""
    devices: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Creates by device class (empty: all classes) and finding: ``hidden``, ``allocated``, …"""
    device_allocations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Creates of containers with allocated cards, by class and by the evidence: ``podresources``, ``nodes``, …"""
    device_evidence: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Queries about devices by source (``podresources``, ``checkpoint``) and outcome: ``answered``, ``failed``, …"""
    device_incidents: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Cards that became unhealthy, by class and action: ``none``, ``annotate``, ``stop``."""
    device_stops: Counter[str] = field(default_factory=Counter)
    """Containers that were stopped because of an unhealthy card, by class."""
    pod_file_failures: int = 0
    """How often files of pods with cards could not be written or removed."""
    quota_incidents: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Containers that were found over a quota, by class, quantity (``memory``, ``cores``) and action: ``observe``,
    ``annotate``, ``stop``, ``kill-process``."""
    quota_stops: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Containers that were stopped because they were over a quota, by class and quantity."""
    device_creates_refused: Counter[str] = field(default_factory=Counter)
    """Creates that were refused because of an unhealthy card, by class; each repetition by the kubelet counts."""
    store_failures: int = 0
    """Transactions that failed or took too long."""


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
        spent = read_node_time(self.host_root)
        if spent is None:
            return None
        sample = now_s, busy, total = self.clock(), spent.busy, spent.total
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
