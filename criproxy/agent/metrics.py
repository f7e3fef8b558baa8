"""The metrics and the health of the agent, for ``--http``. docs/monitoring.md documents them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from criproxy import __version__

_PREFIX = "criproxy_agent"
PHASES = ("Applied", "Trying", "Waiting", "RolledBack", "Refused")
"""Of `RolloutState`."""
_Values = Mapping[Any, float]
"""By the values of the labels, a tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the metrics show, at one moment."""

    connected: bool
    """Whether the daemon answers."""
    view_age_s: float
    """How old what the agent knows of the node is; 0 while the daemon answers."""
    requests: _Values
    """By verb, resource and status."""
    watch_restarts: _Values
    """By resource and reason."""
    silent_s: float | None
    """Since the API server has last sent something; None: it never has."""
    watches: Mapping[str, bool]
    """By resource that the agent follows: whether it knows the present objects."""
    phase: str
    """How far the NodePolicy is that selects this node; empty: none does, or that is not known yet."""
    troubles: int
    """Parts that cannot do their work now."""
    failures: int
    """Of the agent itself, since its start."""


class _AgentCollector(Collector):
    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, from one sample."""
        sample = self._sample()
        yield _gauge("daemon_connected", "1 while the daemon answers the agent, else 0.", float(sample.connected))
        text = "Seconds since the daemon has answered last; 0 while it answers."
        yield _gauge("view_age_seconds", text, sample.view_age_s)
        text = "Requests to the API server, by verb, resource and status; unreachable without an answer."
        yield _counter("requests", text, sample.requests, "verb", "resource", "status")
        text = "Watches of the API server that had to begin again, by resource and reason."
        yield _counter("watch_restarts", text, sample.watch_restarts, "resource", "reason")
        silent = {} if sample.silent_s is None else {(): sample.silent_s}
        yield _gauges("api_silent_seconds", "Seconds since the API server has last sent something.", silent)
        text = "1 while the objects of a resource that the agent follows are current, else 0."
        current = {(resource,): float(is_current) for resource, is_current in sample.watches.items()}
        yield _gauges("watch_current", text, current, "resource")
        text = "1 for how far the NodePolicy is that selects this node, else 0."
        phases = {(phase,): float(phase == sample.phase) for phase in PHASES}
        yield _gauges("rollout_phase", text, phases, "phase")
        text = "Parts of the agent that cannot do their work now; criproxy status has the reasons."
        yield _gauge("troubles", text, float(sample.troubles))
        text = "Failures of the agent itself; its log has the cause."
        yield _counter("failures", text, {(): float(sample.failures)})
        build = GaugeMetricFamily("criproxy_build_info", "Always 1; the version is a label.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=value)


def _gauges(name: str, text: str, values: _Values, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def _counter(name: str, text: str, values: _Values, *labels: str) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family


class AgentMetrics:
    """The registry of one agent.

    Args:
        sample: called at each scrape.
    """

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_AgentCollector(sample))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format for the Accept header *accept*, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
