"""The metrics about the controller: a snapshot of plain values for each scrape, and their metrics.

Labels are bounded: kinds of events, gRPC codes, states, and the NUMA nodes of one machine. docs/monitoring.md explains
the metrics.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from criproxy.node.counters import DECISION_BUCKETS_S, Counters, Times

_Family = CounterMetricFamily | GaugeMetricFamily
_ByLabels = Mapping[Any, int]
"""Numbers by the value of the only label, or by a tuple of the values of all labels."""
_ASKED = [(source, outcome) for source in ("podresources", "checkpoint") for outcome in ("failed", "late")]
"""Outcomes of queries to the kubelet that are exported with 0 before they happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerValues:
    """The controller at one moment, and its counts since the start. Ages and times are in seconds."""

    counters: Counters
    fallbacks: Mapping[str, int]
    failures: Mapping[str, int]
    """By kind, as `process.failures` has them."""
    unpromoted: int
    """Containers that wait for a promotion: created during a failure or a bypass, or without room at a placement."""
    undersized: int
    """Containers that do not have their desired size."""
    misplaced: int
    misplaced_age_s: float
    containers: Mapping[str, int]
    """By state."""
    cpus: Mapping[str, Mapping[int, int]]
    """The number of ``exclusive``, ``shared`` and ``free`` CPUs for pods, by NUMA node."""
    store_current: bool
    store_failing_s: float
    resync_age_s: float | None
    device_cards: Mapping[str, int]
    """The cards of the machine, by device class."""
    device_cards_given: Mapping[str, int]
    """The cards that are allocated to containers, by device class."""
    device_ids: Mapping[tuple[str, str], tuple[int, int]]
    """The healthy and unhealthy ids of our device plugin, by class and resource."""
    device_ids_given: Mapping[tuple[str, str], int]
    """The ids of our device plugin that are allocated to containers, by class and resource."""
    device_plugin_up: bool | None
    """Whether our device plugin reports; None if it never did."""
    unhealthy_cards: Mapping[str, int]
    """Cards in open incidents, by class."""
    over_quota: Mapping[tuple[str, str], int]
    """Quotas that a container exceeds, by class and quantity."""
    config_problem: bool
    released: bool
    ready: bool
    problems: Mapping[str, int]
    """By kind."""
    runtime_up: bool
    kubelet_last_call_s: float | None
    policy_file: tuple[str, str, str]
    """Policy, file and hash that are in effect."""
    config_loaded_s: float
    """When they came into effect, in seconds since the epoch."""
    try_remaining_s: float
    """How long until the former configuration comes back; 0: none is being tried; below 0: it cannot come back."""


_COUNTS = {
    "resizes_refused": ("resizes_refused", "Refused resizes; the kubelet repeats each of them every second."),
    "promotions": ("promotions", "Containers that got CPUs, a place or a size that they had lacked."),
    "policy_failures": ("policy_failures", "Events for which the policy raised an unexpected exception."),
    "policy_faults": ("policy_faults", "Layouts from a policy that broke an invariant and were not used."),
    "store_failures": ("store_failures", "Writes to the state database that failed or took too long."),
    "pod_file_failures": ("pod_file_failures", "Failed attempts to write the files of pods with cards."),
    "unknown_outcomes": ("inquiries", "Calls without an answer about which criproxy asked the runtime."),
    "adoptions": ("adoptions", "Running containers that criproxy adopted, because it had not placed them."),
    "conflicts_repaired": ("conflicts_repaired", "Exclusive CPUs on which criproxy found a second container."),
}
"""Field of `Counters` → name without prefix and ``_total``, and help."""

_NOW = {
    "misplaced": ("misplaced_containers", "Containers that do not have their grant yet."),
    "misplaced_age_s": (
        "misplaced_age_seconds",
        "How long the oldest misplaced container has been waiting; 0 if there is none.",
    ),
    "unpromoted": ("unpromoted_containers", "Containers that share CPUs only until they can be placed."),
    "undersized": ("undersized_containers", "Containers without room for the size that they should have."),
    "store_current": ("store_current", "1 while the state on disk is up to date, else 0."),
    "store_failing_s": ("store_failing_seconds", "How long the state on disk has been out of date; 0 if it is not."),
    "resync_age_s": ("resync_age_seconds", "How long ago criproxy last asked which containers are running."),
    "config_problem": ("config_problem", "1 while the configuration in effect is not the one in the file, else 0."),
    "config_loaded_s": (
        "config_loaded_timestamp_seconds",
        "When the configuration in effect was loaded, in seconds since the epoch.",
    ),
    "try_remaining_s": (
        "config_try_remaining_seconds",
        "Time until the former configuration comes back; 0 if none is being tried, negative if it cannot come back.",
    ),
    "released": ("released", "1 while the node is released and no container is placed, else 0."),
    "ready": ("ready", "1 if /readyz answers with 200, 0 while it answers with 503."),
    "runtime_up": ("runtime_up", "1 if the runtime answered when criproxy last asked it, else 0."),
    "kubelet_last_call_s": (
        "kubelet_last_call_timestamp_seconds",
        "When a client last called or connected, in seconds since the epoch; absent if none did.",
    ),
}
"""Field of `ControllerValues` → name without prefix, and help."""


class ControllerCollector(Collector):
    """Converts a new snapshot to metrics at each scrape."""

    def __init__(self, measure: Callable[[], ControllerValues]) -> None:
        self._measure = measure

    def describe(self) -> Iterable[Metric]:
        """Return nothing, which prevents the registration from collecting."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        controller = self._measure()
        counters = controller.counters
        for name, label, text, counts in _totals(controller):
            total = CounterMetricFamily(f"criproxy_{name}", text, labels=[label])
            for word, count in sorted(counts.items()):
                total.add_metric([word], count)
            yield total
        for field, (name, text) in _COUNTS.items():
            yield CounterMetricFamily(f"criproxy_{name}", text, value=getattr(counters, field))
        for field, (name, text) in _NOW.items():
            if (value := getattr(controller, field)) is not None:
                yield GaugeMetricFamily(f"criproxy_{name}", text, value=value)
        text = "Updates to other containers that the runtime has not answered yet."
        yield GaugeMetricFamily("criproxy_updates_in_flight", text, value=counters.updates_in_flight)
        text = "Containers for which it is unknown whether they exist or run."
        yield GaugeMetricFamily("criproxy_unknown_containers", text, value=controller.containers.get("unknown", 0))
        yield _configuration(controller)
        yield _problems(controller)
        yield from _devices(controller)
        yield _decision_times(counters.decision_times)
        yield _containers(controller)
        yield from _cpus(controller)


def _totals(controller: ControllerValues) -> Iterator[tuple[str, str, str, Mapping[str, int]]]:
    """Yield name without prefix and ``_total``, label, help, and the counts by label.

    Known labels start with 0: Prometheus shows no increase for a series that did not exist.
    """
    count, text = controller.counters, "Changes of the node's state, by the kind of event that caused them."
    yield "decisions", "event", text, count.decisions
    refusals = {"RESOURCE_EXHAUSTED": 0, "UNAVAILABLE": 0, **count.refusals}
    yield "refusals", "code", "Calls from the kubelet that criproxy refused, by gRPC status code.", refusals
    text = "Held calls in which criproxy itself failed, by what it did with them."
    yield "fallbacks", "way", text, controller.fallbacks
    text = "Failures of criproxy itself: calls, watchers, policies, reports, database rows."
    yield "failures", "kind", text, controller.failures
    updates = {"sent": count.updates_sent, "failed": count.updates_failed, "lost": count.updates_lost}
    yield "updates", "outcome", "Updates to other containers: sent, and how many of these failed or were lost.", updates
    text = "Cpusets changed by another program: found, and how many of these were repaired immediately."
    yield "drift", "outcome", text, {"found": count.drift_found, "repaired": count.drift_repaired}
    exits = {"events": 0, "lists": 0, "cgroups": 0, **count.exits}
    yield "exits", "seen", "Containers that ended without a call, by what reported them.", exits
    resyncs = {"ok": count.resyncs, "failed": count.resync_failures}
    yield "resyncs", "outcome", "Comparisons with the containers that the runtime lists.", resyncs
    text = "Reloads of the configuration: ok, or failed, in which case the old one stays."
    yield "config_reloads", "outcome", text, {"ok": count.reloads_ok, "failed": count.reloads_failed}
    ends = {"kept": 0, "time": 0, "file": 0, **count.tries_ended}
    yield "config_tries_ended", "how", "Tries of a configuration that have ended, by what ended them.", ends


def _problems(controller: ControllerValues) -> Metric:
    family = GaugeMetricFamily(
        "criproxy_problems", "What criproxy status --check finds wrong, by kind.", labels=["kind"]
    )
    for kind, count in sorted(controller.problems.items()):
        family.add_metric([kind], count)
    return family


def _configuration(controller: ControllerValues) -> Metric:
    text = "Always 1; the policy, its file and the hash of the file are labels. Equal files have the same hash."
    family = GaugeMetricFamily("criproxy_config_info", text, labels=["policy", "file", "hash"])
    family.add_metric(controller.policy_file, 1)
    return family


def _decision_times(times: Times) -> Metric:
    names = [*map(str, DECISION_BUCKETS_S), "+Inf"]
    buckets: list[tuple[str, float]] = list(zip(names, accumulate(times.counts), strict=True))
    text = "How long a decision about a CreateContainer request or a resize took, excluding disk and runtime."
    family = HistogramMetricFamily("criproxy_decision_seconds", text)
    family.add_metric([], buckets, times.total_s)
    return family


def _creates(controller: ControllerValues) -> _ByLabels:
    counted = {(kind or "all", word): count for (kind, word), count in controller.counters.devices.items()}
    return {**{(kind, "no-evidence"): 0 for kind in controller.device_cards}, **counted}


def _refused(controller: ControllerValues) -> _ByLabels:
    return {**dict.fromkeys(controller.device_cards, 0), **controller.counters.device_creates_refused}


def _evidence(controller: ControllerValues) -> _ByLabels:
    return {**dict.fromkeys(_ASKED, 0), **controller.counters.device_evidence}


def _ids(controller: ControllerValues) -> _ByLabels:
    return {
        (*key, health): count
        for key, counts in controller.device_ids.items()
        for health, count in zip(("healthy", "unhealthy"), counts, strict=True)
    }


_DEVICES: tuple[tuple[type[_Family], str, tuple[str, ...], Callable[[ControllerValues], _ByLabels], str], ...] = (
    (
        *(CounterMetricFamily, "device_creates", ("device_class", "finding"), _creates),
        "CreateContainer requests by device class and finding: allocated, hidden, stripped and others.",
    ),
    (
        *(CounterMetricFamily, "device_evidence", ("source", "outcome"), _evidence),
        "Queries to the kubelet about allocated devices, by source and outcome.",
    ),
    (
        *(CounterMetricFamily, "device_allocations", ("device_class", "source")),
        lambda controller: controller.counters.device_allocations,
        "CreateContainer requests with allocated cards, by device class and source of the evidence.",
    ),
    (
        *(GaugeMetricFamily, "device_cards", ("device_class",)),
        lambda controller: controller.device_cards,
        "Cards of the machine, by device class.",
    ),
    (
        *(GaugeMetricFamily, "device_cards_given", ("device_class",)),
        lambda controller: controller.device_cards_given,
        "Cards that containers have, by device class.",
    ),
    (
        *(GaugeMetricFamily, "device_plugin_up", ()),
        lambda controller: {} if controller.device_plugin_up is None else {(): controller.device_plugin_up},
        "1 while the device plugin reports to the daemon, else 0.",
    ),
    (
        *(GaugeMetricFamily, "device_ids", ("device_class", "resource", "health"), _ids),
        "IDs that the device plugin advertises, by resource; each replica of a card counts.",
    ),
    (
        *(GaugeMetricFamily, "device_ids_given", ("device_class", "resource")),
        lambda controller: controller.device_ids_given,
        "IDs of the device plugin that containers have, by resource.",
    ),
    (
        *(GaugeMetricFamily, "device_unhealthy_cards", ("device_class",)),
        lambda controller: controller.unhealthy_cards,
        "Cards that the device plugin has reported as unhealthy, and not yet as healthy again.",
    ),
    (
        *(CounterMetricFamily, "device_incidents", ("device_class", "action")),
        lambda controller: controller.counters.device_incidents,
        "Reports of unhealthy cards, by action.",
    ),
    (
        *(CounterMetricFamily, "device_stops", ("device_class",)),
        lambda controller: controller.counters.device_stops,
        "Containers that criproxy has stopped because of an unhealthy card.",
    ),
    (
        *(CounterMetricFamily, "device_creates_refused", ("device_class",)),
        _refused,
        "CreateContainer requests that criproxy refused because of an unhealthy card; each repetition counts.",
    ),
    (
        *(GaugeMetricFamily, "device_over_quota", ("device_class", "quantity")),
        lambda controller: controller.over_quota,
        "Containers that are over the quota of a vGPU at this moment.",
    ),
    (
        *(CounterMetricFamily, "device_quota_incidents", ("device_class", "quantity", "action")),
        lambda controller: controller.counters.quota_incidents,
        "Containers that were found over the quota of a vGPU, by action.",
    ),
    (
        *(CounterMetricFamily, "device_quota_stops", ("device_class", "quantity")),
        lambda controller: controller.counters.quota_stops,
        "Containers that criproxy has stopped because they were over the quota of a vGPU.",
    ),
)
"""Kind, name without prefix and ``_total``, labels, the numbers by their values, and help."""


def _devices(controller: ControllerValues) -> Iterator[Metric]:
    for kind, name, labels, numbers, text in _DEVICES:
        family = kind(f"criproxy_{name}", text, labels=labels)
        for values, number in sorted(numbers(controller).items()):
            family.add_metric([values] if isinstance(values, str) else values, number)
        yield family


def _containers(controller: ControllerValues) -> Metric:
    family = GaugeMetricFamily("criproxy_containers", "Known containers by state.", labels=["state"])
    for state, count in sorted(controller.containers.items()):
        family.add_metric([state], count)
    return family


def _cpus(controller: ControllerValues) -> Iterator[Metric]:
    texts = {
        "exclusive": "Exclusive CPUs.",
        "shared": "Shared CPUs: pods may use them, and they are not exclusive.",
        "free": "Shared CPUs that can become exclusive: not reserved, isolated, in a balloon or in a used pool.",
    }
    for kind, text in texts.items():
        family = GaugeMetricFamily(f"criproxy_{kind}_cpus", text, labels=["numa_node"])
        for node, count in sorted(controller.cpus[kind].items()):
            family.add_metric([str(node)], count)
        yield family
