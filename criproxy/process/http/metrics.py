"""Prometheus metrics of a program: families with their samples, and the registry that renders them.

Imported only with ``--http``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from criproxy import __version__

Values = Mapping[Any, float]
"""The number of each sample by the tuple of its labels' values."""


def gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Return a gauge with the help *text*."""
    return _with_samples(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Return a counter with the help *text*; its *name* is without ``_total``."""
    return _with_samples(CounterMetricFamily(name, text, labels=labels), values)


def _with_samples(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def build_info() -> Metric:
    """Return the metric that has the version as its label."""
    return gauge("criproxy_build_info", "Always 1; the version is a label.", {(__version__,): 1}, "version")


def buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound; *counts* are not cumulative, and one more than *bounds*."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


class _Families(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        yield from self._collect()


class Registry:
    """The metrics of one process, with those that Prometheus' client has for each process.

    Args:
        sources: return families; called at each scrape.
    """

    def __init__(self, *sources: Callable[[], Iterable[Metric]]) -> None:
        self._registry = CollectorRegistry()
        for each in sources:
            self._registry.register(_Families(each))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format for the Accept header *accept*, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
