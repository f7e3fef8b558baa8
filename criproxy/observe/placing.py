"""What Prometheus reads about placing: a snapshot of plain values, taken when it asks, and its metrics.

Labels are bounded: kinds of events, gRPC codes, states, and the NUMA nodes of one machine. docs/monitoring.md says what
each metric means and what to do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """The controller at one moment, and what it counted since its start. Ages and times are in seconds."""

    decisions: Mapping[str, int]
    decision_bounds_s: Sequence[float]
    decision_counts: Sequence[int]
    decision_total_s: float
    refusals: Mapping[str, int]
    resizes_refused: int
    promotions: int
    unpromoted: int
    """Containers that came while criproxy failed or was bypassed, or did not fit when all were placed, and wait."""
    undersized: int
    """Containers whose size is not the one that they should have."""
    fallbacks: Mapping[str, int]
    policy_failures: int
    policy_faults: int
    failures: Mapping[str, int]
    """By kind, as `control.failures` has them."""
    updates: Mapping[str, int]
    updates_in_flight: int
    misplaced: int
    misplaced_age_s: float
    drift: Mapping[str, int]
    exits: Mapping[str, int]
    unknown: int
    inquiries: int
    containers: Mapping[str, int]
    cpus: Mapping[str, Mapping[int, int]]
    """How many of those that pods may use are ``exclusive``, ``shared`` and ``free``, by NUMA node."""
    store_failures: int
    store_current: bool
    store_failing_s: float
    resyncs: Mapping[str, int]
    resync_age_s: float | None
    adoptions: int
    device_evidence: Mapping[tuple[str, str], int]
    """By source of the kubelet and what came of asking it."""
    device_allocations: Mapping[tuple[str, str], int]
    """By class of devices and source of the evidence."""
    device_cards: Mapping[str, int]
    """What the machine has, by class of devices."""
    device_cards_given: Mapping[str, int]
    """Those of them that containers have."""
    devices: Mapping[tuple[str, str], int]
    """By class of devices and what was found at a create."""
    conflicts_repaired: int
    reloads: Mapping[str, int]
    config_problem: bool
    released: bool
    ready: bool


_TOTALS = {
    "decisions": ("decisions", "event", "Changes of the node's state, by the kind of event that brought them."),
    "refusals": ("refusals", "code", "Calls of the kubelet that were refused, by gRPC status code."),
    "fallbacks": ("fallbacks", "way", "Held calls at which criproxy itself failed, by what it did with them."),
    "failures": ("failures", "kind", "Failures of criproxy itself: calls, watchers, policies, reports, database rows."),
    "updates": ("updates", "outcome", "Updates to other containers: sent, of these failed and lost."),
    "drift": ("drift", "outcome", "Cpusets changed by another program: found, and of these repaired at once."),
    "exits": ("exits", "seen", "Ends of containers without a call, by what reported them."),
    "resyncs": ("resyncs", "outcome", "Comparisons with the containers that the runtime lists."),
    "reloads": ("config_reloads", "outcome", "Reloads of the configuration: ok, or failed, and the old one stays."),
}
"""Field of `Placing` → name without prefix and ``_total``, label and help."""

_COUNTS = {
    "resizes_refused": ("resizes_refused", "Resizes that were refused; the kubelet repeats each every second."),
    "promotions": ("promotions", "Containers that got the CPUs, the place or the size that they lacked before."),
    "policy_failures": ("policy_failures", "Events at which the policy raised an exception that no policy may raise."),
    "policy_faults": ("policy_faults", "Answers of a policy that broke an invariant and were not used."),
    "store_failures": ("store_failures", "Writes to the state database that failed or took too long."),
    "inquiries": ("inquiries", "Calls without an answer whose outcome criproxy asked the runtime for."),
    "adoptions": ("adoptions", "Adopted containers: running ones that criproxy did not place."),
    "conflicts_repaired": ("conflicts_repaired", "Exclusive CPUs found with a second container on them."),
}

_NOW = {
    "updates_in_flight": ("updates_in_flight", "Updates to other containers that the runtime has not answered yet."),
    "misplaced": ("misplaced_containers", "Containers that do not have their grant yet."),
    "misplaced_age_s": ("misplaced_age_seconds", "How long the oldest misplaced container has waited; 0 without one."),
    "unpromoted": ("unpromoted_containers", "Containers that are shared only until they can be placed."),
    "undersized": ("undersized_containers", "Containers without room for the size that they should have."),
    "unknown": ("unknown_containers", "Containers with an unknown outcome: whether they exist or run."),
    "store_current": ("store_current", "1 while the state on disk is up to date, else 0."),
    "store_failing_s": ("store_failing_seconds", "How long the state on disk has been out of date; 0 if it is not."),
    "resync_age_s": ("resync_age_seconds", "How long ago criproxy last asked the runtime which containers run."),
    "config_problem": ("config_problem", "1 while the configuration in force is not the one in the file, else 0."),
    "released": ("released", "1 while the node is released and no container is placed, else 0."),
    "ready": ("ready", "1 if criproxy decides held calls, 0 until the runtime has listed its containers."),
}


class PlacingCollector(Collector):
    """Turns a fresh snapshot into metrics."""

    def __init__(self, measure: Callable[[], Placing]) -> None:
        self._measure = measure

    def describe(self) -> Iterable[Metric]:
        """Nothing: this keeps registration from collecting."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        placing = self._measure()
        values = {field.name: getattr(placing, field.name) for field in fields(placing)}
        for field, (name, label, text) in _TOTALS.items():
            total = CounterMetricFamily(f"criproxy_{name}", text, labels=[label])
            for word, count in sorted(values[field].items()):
                total.add_metric([word], count)
            yield total
        for field, (name, text) in _COUNTS.items():
            yield CounterMetricFamily(f"criproxy_{name}", text, value=values[field])
        for field, (name, text) in _NOW.items():
            if values[field] is not None:
                yield GaugeMetricFamily(f"criproxy_{name}", text, value=values[field])
        yield from _devices(placing)
        yield from _cards(placing)
        yield _decision_times(placing)
        yield _containers(placing)
        yield from _cpus(placing)


def _decision_times(placing: Placing) -> Metric:
    names = [*(str(bound) for bound in placing.decision_bounds_s), "+Inf"]
    buckets: list[tuple[str, float]] = list(zip(names, accumulate(placing.decision_counts), strict=True))
    text = "How long a decision about a create or a resize took, without disk and runtime."
    family = HistogramMetricFamily("criproxy_decision_seconds", text)
    family.add_metric([], buckets, placing.decision_total_s)
    return family


def _devices(placing: Placing) -> Iterator[Metric]:
    counted = (
        (
            *("device_creates", ["device_class", "finding"], placing.devices),
            "Creates by class of devices and what was found: allocated, hidden, stripped and others.",
        ),
        (
            *("device_evidence", ["source", "outcome"], placing.device_evidence),
            "Questions to the kubelet about allocated devices, by source and outcome.",
        ),
        (
            *("device_allocations", ["device_class", "source"], placing.device_allocations),
            "Creates with allocated cards, by class of devices and source of the evidence.",
        ),
    )
    for name, labels, counts, text in counted:
        family = CounterMetricFamily(f"criproxy_{name}", text, labels=labels)
        for key, count in sorted(counts.items()):
            family.add_metric(list(key), count)
        yield family


def _cards(placing: Placing) -> Iterator[Metric]:
    texts = {
        "device_cards": "Cards that the machine has, by class of devices.",
        "device_cards_given": "Cards that containers have, by class of devices.",
    }
    for name, text in texts.items():
        family = GaugeMetricFamily(f"criproxy_{name}", text, labels=["device_class"])
        for kind, count in sorted(getattr(placing, name).items()):
            family.add_metric([kind], count)
        yield family


def _containers(placing: Placing) -> Metric:
    family = GaugeMetricFamily("criproxy_containers", "Known containers by state.", labels=["state"])
    for state, count in sorted(placing.containers.items()):
        family.add_metric([state], count)
    return family


def _cpus(placing: Placing) -> Iterator[Metric]:
    texts = {
        "exclusive": "Exclusive CPUs.",
        "shared": "Shared CPUs: pods may use them, and they are not exclusive.",
        "free": "Shared CPUs that can become exclusive: not reserved, isolated or in a balloon.",
    }
    for kind, text in texts.items():
        family = GaugeMetricFamily(f"criproxy_{kind}_cpus", text, labels=["numa_node"])
        for node, count in sorted(placing.cpus[kind].items()):
            family.add_metric([str(node)], count)
        yield family
