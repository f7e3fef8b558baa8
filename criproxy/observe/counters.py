"""What the controller counts: plain numbers, so that counting costs nothing; `observe.placing_metrics` shows them.

Here is what happens; how things are at this moment (unknown outcomes, free CPUs, what is not applied) is read from
the node for each request.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

DECISION_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
"""Upper bounds in seconds of the histogram of decision times."""


@dataclass(slots=True)
class Times:
    """A histogram of durations in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DECISION_BUCKETS_S) + 1))
    """By bucket of `DECISION_BUCKETS_S`, not cumulative; the last one is for what exceeds them all."""
    total_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count one."""
        self.counts[bisect_left(DECISION_BUCKETS_S, duration_s)] += 1
        self.total_s += duration_s


@dataclass(slots=True)
class Counters:
    """Everything that is counted since the start; all of it on the event loop's thread."""

    decisions: Counter[str] = field(default_factory=Counter)
    """Events that changed the node, by kind of event in snake case: ``container_creating``, …"""
    decision_times: Times = field(default_factory=Times)
    """What the engine and the policy took for those that can place: creates and resizes."""
    policy_failures: int = 0
    """Events at which the policy raised what no policy may."""
    policy_faults: int = 0
    """Answers of a policy of somebody else that broke a rule and were not used."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Calls of the kubelet that were refused, by gRPC code: ``RESOURCE_EXHAUSTED``, …"""
    resizes_refused: int = 0
    """Resizes that were refused, those included that the kubelet only repeats."""
    promotions: int = 0
    """Containers that got later what they should have had."""
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Held calls at which our own code failed, by what became of them: ``shared``, ``pass``, ``refuse``."""
    updates_sent: int = 0
    """Updates of ours to other containers that the runtime got."""
    updates_in_flight: int = 0
    """Those that the runtime has not answered yet."""
    updates_failed: int = 0
    """Those that it refused or did not answer; each is tried again."""
    updates_lost: int = 0
    """Those that it answered OK although the cgroup says otherwise; each is tried again."""
    drift_found: int = 0
    """Containers whose cgroup had another cpuset than the one that was applied."""
    drift_repaired: int = 0
    exits: Counter[str] = field(default_factory=Counter)
    """Ends of containers that were noticed before a reply to the kubelet showed them, by how: ``events``, ``lists``,
    ``cgroups`` (which were gone). A runtime's event is often there before its reply to StopContainer."""
    unknown_outcomes: int = 0
    """Calls that ended without an answer and had to be asked for."""
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
    """Configurations that could not be used: the one before stays."""
    devices: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Creates by class of devices (empty: all of them) and what was found there: ``hidden``, ``allocated``, …"""
    device_allocations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Creates that were given cards, by class and by the evidence for it: ``podresources``, ``nodes``, …"""
    device_evidence: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Questions about devices by source (``podresources``, ``checkpoint``) and what came of them: ``answered``,
    ``failed``, …"""
    device_incidents: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Cards that became unhealthy, by class and by what was to be done: ``none``, ``annotate``, ``stop``."""
    device_stops: Counter[str] = field(default_factory=Counter)
    """Containers that were stopped because of an unhealthy card, by class."""
    pod_file_failures: int = 0
    """Times at which files of pods with cards could not be written or removed."""
    quota_incidents: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Containers that were found over a quota, by class, quantity (``memory``, ``cores``) and what was to be done:
    ``observe``, ``annotate``, ``stop``, ``kill-process``."""
    quota_stops: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Containers that were stopped because they were over a quota, by class and quantity."""
    device_creates_refused: Counter[str] = field(default_factory=Counter)
    """Creates that were refused because of one, by class; each repetition by the kubelet counts."""
    store_failures: int = 0
    """Transactions that failed or took too long."""
