"""The metrics of the data plane: collected from its counters at each scrape, never on the path of a call.

Imported only with ``--http``. Labels are bounded: a method that is not in CRI is ``other``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import HistogramMetricFamily, Metric

from criproxy.api.metrics import controller_metrics, device_metrics
from criproxy.api.metrics.moment import Moment
from criproxy.node.bypass import BypassMode
from criproxy.process.heartbeat import LAG_BUCKETS_S, Heartbeat
from criproxy.process.http.metrics import Registry, buckets, build_info, counter, gauge
from criproxy.wire.stats import HELD_BUCKETS_S, OTHER, Entry, Histogram, Stats

_COUNTERS = {
    "accepted_connections": ("connections_total", "Client connections accepted since criproxy started."),
    "dial_failures": ("dial_failures", "Client connections that ended because the runtime could not be reached."),
    "refused_calls": ("refused", "Held calls that were answered with an error of criproxy."),
    "cancelled_held_calls": ("cancelled_held", "Held calls that the client or the runtime ended first."),
    "handler_errors": ("handler_errors", "Handlers of criproxy that failed; onError decided about their calls."),
    "unreadable_messages": ("unreadable", "Messages to be held or edited that could not be read."),
    "protocol_errors": ("protocol_errors", "Connections closed because a peer broke HTTP/2 or gRPC framing."),
    "unknown_outcomes": ("unknown_outcomes", "Watched calls whose outcome is unknown."),
}
"""Metric name without prefix and ``_total`` → attribute of `Stats` and help."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """Values that are read at the moment of each scrape."""

    window_debt_bytes: Callable[[], int]
    oldest_held_s: Callable[[], float]
    bypass: Callable[[], BypassMode]
    dropped_log_lines: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Proxies:
    """What the metrics of the data plane are read from."""

    stats: Sequence[Stats]
    heartbeat: Heartbeat
    gauges: Gauges
    known: frozenset[str]

    def families(self) -> Iterator[Metric]:
        """Yield all metrics from the present counters."""
        text = "Calls by what was done to them: pass, watch, hold, edit or bypass."
        yield counter("criproxy_calls", text, self._calls(), "method", "way")
        yield self._held()
        read = {("to_runtime",): self._sum("bytes_from_kubelet"), ("to_kubelet",): self._sum("bytes_from_runtime")}
        yield counter("criproxy_bytes", "Bytes read, by destination.", read, "direction")
        for name, (attribute, text) in _COUNTERS.items():
            yield counter(f"criproxy_{name}", text, {(): self._sum(attribute)})
        yield gauge("criproxy_connections", "Open client connections.", {(): self._sum("connections_open")})
        text = "Flow-control window that criproxy granted to clients and has not recovered yet."
        yield gauge("criproxy_window_debt_bytes", text, {(): self.gauges.window_debt_bytes()})
        text = "How long criproxy has held the oldest call that it holds; 0 if it holds none."
        yield gauge("criproxy_oldest_held_call_seconds", text, {(): self.gauges.oldest_held_s()})
        text = "1 while the policy is bypassed: by an operator, or automatically after failures."
        modes = {(mode.value,): self.gauges.bypass() is mode for mode in (BypassMode.AUTOMATIC, BypassMode.ORDERED)}
        yield gauge("criproxy_bypass", text, modes, "mode")
        text = "Log lines dropped because they were not read in time."
        yield counter("criproxy_dropped_log_lines", text, {(): self.gauges.dropped_log_lines()})
        yield build_info()
        lag = HistogramMetricFamily("criproxy_loop_lag_seconds", "How late the event loop woke up, at each heartbeat.")
        lag.add_metric([], buckets(LAG_BUCKETS_S, self.heartbeat.lag_counts), self.heartbeat.lag_total_s)
        yield lag

    def _calls(self) -> Mapping[tuple[str, str], int]:
        counts = Counter[tuple[str, str]]()
        for entry in self._entries():
            method = self._label(entry)
            counts[method, entry.way] += entry.calls
            counts[method, "bypass"] += entry.bypassed
            for way, calls in entry.earlier.items():
                counts[method, way] += calls
        return {labels: count for labels, count in sorted(counts.items()) if count}

    def _held(self) -> Metric:
        family = HistogramMetricFamily(
            "criproxy_held_seconds", "How long criproxy held a call before it continued.", labels=["method"]
        )
        merged: defaultdict[str, list[Histogram]] = defaultdict(list)
        for entry in self._entries():
            if any(entry.held.counts):
                merged[self._label(entry)].append(entry.held)
        for method, histograms in sorted(merged.items()):
            counts = [sum(column) for column in zip(*(h.counts for h in histograms), strict=True)]
            family.add_metric([method], buckets(HELD_BUCKETS_S, counts), sum(h.sum for h in histograms))
        return family

    def _sum(self, attribute: str) -> int:
        return sum(getattr(stats, attribute) for stats in self.stats)

    def _entries(self) -> Iterator[Entry]:
        for stats in self.stats:
            yield from stats.entries.values()
            yield stats.other

    def _label(self, entry: Entry) -> str:
        return entry.method if entry.method in self.known else OTHER


def of_controller(now: Moment) -> Iterator[Metric]:
    """Yield the metrics of a controller, with those of cards."""
    for name, metric in (controller_metrics.METRICS | device_metrics.METRICS).items():
        yield metric.at(now, name)
    text = "How long a decision about a CreateContainer request or a resize took, excluding disk and runtime."
    family, times = HistogramMetricFamily("criproxy_decision_seconds", text), now.counters.decision_times
    family.add_metric([], buckets(times.bounds, times.counts), times.sum)
    yield family


def registry(
    stats: Sequence[Stats], heartbeat: Heartbeat, gauges: Gauges, known: frozenset[str], moment: Callable[[], Moment]
) -> Registry:
    """Return the metrics of one daemon; *known* are the method paths that may be labels."""
    return Registry(lambda: of_controller(moment()), _Proxies(stats, heartbeat, gauges, known).families)
