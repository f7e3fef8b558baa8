"""The metrics of the data plane: collected from its counters at each scrape, never on the path of a call.

Imported only with ``--http``. Labels are bounded: a method that is not in CRI is ``other``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from criproxy.api.metrics import controller_metrics, device_metrics
from criproxy.api.metrics.moment import Moment, MomentCollector
from criproxy.node.bypass import BypassMode
from criproxy.process.heartbeat import LAG_BUCKETS_S, Heartbeat
from criproxy.process.http.metrics import Registry, buckets, build_info
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


class _ProxyCollector:
    def __init__(self, stats: Sequence[Stats], heartbeat: Heartbeat, gauges: Gauges, known: frozenset[str]) -> None:
        self._stats = stats
        self._heartbeat = heartbeat
        self._gauges = gauges
        self._known = known

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics from the present counters."""
        yield self._calls()
        yield self._held()
        yield self._bytes()
        for name, (attribute, text) in _COUNTERS.items():
            total = sum(getattr(stats, attribute) for stats in self._stats)
            yield CounterMetricFamily(f"criproxy_{name}", text, value=total)
        yield from self._now()
        lag = HistogramMetricFamily("criproxy_loop_lag_seconds", "How late the event loop woke up, at each heartbeat.")
        lag.add_metric([], buckets(LAG_BUCKETS_S, self._heartbeat.lag_counts), self._heartbeat.lag_total_s)
        yield lag

    def _calls(self) -> Metric:
        counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        for entry in self._entries():
            method = self._label(entry)
            counts[method, entry.way] += entry.calls
            counts[method, "bypass"] += entry.bypassed
            for way, calls in entry.earlier.items():
                counts[method, way] += calls
        family = CounterMetricFamily(
            "criproxy_calls",
            "Calls by what was done to them: pass, watch, hold, edit or bypass.",
            labels=["method", "way"],
        )
        for labels, count in sorted(counts.items()):
            if count:
                family.add_metric(labels, count)
        return family

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

    def _bytes(self) -> Metric:
        family = CounterMetricFamily("criproxy_bytes", "Bytes read, by destination.", labels=["direction"])
        family.add_metric(["to_runtime"], sum(stats.bytes_from_kubelet for stats in self._stats))
        family.add_metric(["to_kubelet"], sum(stats.bytes_from_runtime for stats in self._stats))
        return family

    def _now(self) -> Iterator[Metric]:
        connections = sum(stats.connections_open for stats in self._stats)
        debt, held_s = self._gauges.window_debt_bytes(), self._gauges.oldest_held_s()
        yield GaugeMetricFamily("criproxy_connections", "Open client connections.", value=connections)
        yield GaugeMetricFamily(
            "criproxy_window_debt_bytes",
            "Flow-control window that criproxy granted to clients and has not recovered yet.",
            value=debt,
        )
        text = "How long criproxy has held the oldest call that it holds; 0 if it holds none."
        yield GaugeMetricFamily("criproxy_oldest_held_call_seconds", text, value=held_s)
        yield self._bypass()
        dropped = self._gauges.dropped_log_lines()
        yield CounterMetricFamily(
            "criproxy_dropped_log_lines", "Log lines dropped because they were not read in time.", value=dropped
        )
        yield build_info()

    def _bypass(self) -> Metric:
        text = "1 while the policy is bypassed: by an operator, or automatically after failures."
        family = GaugeMetricFamily("criproxy_bypass", text, labels=["mode"])
        for mode in (BypassMode.AUTOMATIC, BypassMode.ORDERED):
            family.add_metric([mode.value], self._gauges.bypass() is mode)
        return family

    def _entries(self) -> Iterator[Entry]:
        for stats in self._stats:
            yield from stats.entries.values()
            yield stats.other

    def _label(self, entry: Entry) -> str:
        return entry.method if entry.method in self._known else OTHER


def registry(
    stats: Sequence[Stats],
    heartbeat: Heartbeat,
    gauges: Gauges,
    known: frozenset[str],
    moment: Callable[[], Moment],
) -> Registry:
    """Return the metrics of one daemon; *known* are the method paths that may be labels."""
    of_moment = MomentCollector(moment, controller_metrics.METRICS, device_metrics.METRICS)
    return Registry(of_moment.collect, _ProxyCollector(stats, heartbeat, gauges, known).collect)
