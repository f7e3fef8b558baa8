"""A controller at the moment of a scrape, and the tables of metrics that are read from it.

A metric is a function; its name and its docstring are those that Prometheus sees.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from time import monotonic
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from criproxy.api.usage import usage_rows
from criproxy.api.views.status_check import WELL, Found
from criproxy.devices.usage.rows import CardRow
from criproxy.model.cpuset import CpuSet
from criproxy.model.incident import Incident
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller
from criproxy.node.counters import DECISION_BUCKETS_S, Counters, Times
from criproxy.process.http.metrics import buckets

MOST_LABEL = 253
"""The longest label, in characters: Kubernetes accepts no longer name."""
KIND = "device_class"
VGPU = ("namespace", "pod", "container", KIND, "profile", "card")
Numbers = Mapping[Any, float]
"""Numbers by the value of the only label, or by a tuple of the values of all labels."""
Gauge = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True)
class Moment:
    """A controller at the moment of a scrape."""

    controller: Controller
    found: Found = WELL
    """What is wrong."""
    last_call_s: float | None = None
    """When a client called, in seconds since the epoch; None: it never did."""

    @property
    def counters(self) -> Counters:
        """The counts since the start."""
        return self.controller.context.counters

    @cached_property
    def node(self) -> Node:
        """The node, the same for all metrics."""
        return self.controller.context.state.node

    @cached_property
    def states(self) -> Mapping[str, int]:
        """The number of containers by state."""
        counted = Counter(container.state.value for container in self.node.containers.values())
        return {state.value: counted[state.value] for state in ContainerState}

    @cached_property
    def misplaced_ages_s(self) -> list[float]:
        """For how long each misplaced container is being updated."""
        return [monotonic() - began_s for began_s in self.controller.reconciler.misplaced_since_s()]

    @property
    def incidents(self) -> list[Incident]:
        """Unhealthy cards, and containers over a quota, at this moment."""
        return [each for each in self.node.incidents.values() if not each.ended]

    def by_node(self, cpus: CpuSet) -> Numbers:
        """Return how many of *cpus* each NUMA node has."""
        return {str(numa.id): len(numa.cpus & cpus) for numa in self.node.topology.nodes}

    @property
    def ids_given(self) -> Mapping[tuple[str, str], int]:
        """The ids of our device plugin that are allocated to containers, by class and resource."""
        return self.controller.devices.ids_given(self.controller.device_plugin.ids())

    @cached_property
    def vgpus(self) -> Mapping[tuple[str, ...], CardRow]:
        """The vGPUs of containers by `VGPU` labels; one for two attempts of a container, which have the same names."""
        found = {}
        for row in usage_rows(self.controller):
            quota, container = row.grant.quota, row.container
            if quota is not None and container.state is not ContainerState.EXITED:
                names = (container.namespace, container.pod_name, container.name)
                labels = (*names, row.grant.kind, quota.profile, row.card)
                found[tuple(bounded_text(each, MOST_LABEL) for each in labels)] = row
        return found


Read = TypeVar("Read", bound=Callable[[Moment], float | Numbers | None])
"""Returns the number, or the numbers by label; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of a table."""

    family: type[Gauge]
    labels: tuple[str, ...]
    read: Callable[[Moment], float | Numbers | None]


class MetricTable(dict[str, Metric]):
    """Metrics by name, without prefix and ``_total``."""

    def counter(self, *labels: str) -> Callable[[Read], Read]:
        """Add the decorated function as a counter."""
        return partial(self._add, CounterMetricFamily, labels)

    def gauge(self, *labels: str) -> Callable[[Read], Read]:
        """Add the decorated function as a gauge."""
        return partial(self._add, GaugeMetricFamily, labels)

    def _add(self, family: type[Gauge], labels: tuple[str, ...], read: Read) -> Read:
        self[read.__name__] = Metric(family, labels, read)
        return read


class MomentCollector(Collector):
    """Reads all metrics of *tables* at each scrape."""

    def __init__(self, moment: Callable[[], Moment], *tables: MetricTable) -> None:
        self._moment, self._tables = moment, tables

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; those without a known value have no sample."""
        now = self._moment()
        for name, metric in (each for table in self._tables for each in table.items()):
            family = metric.family(f"criproxy_{name}", metric.read.__doc__ or "", labels=metric.labels)
            for labels, number in samples(metric, now):
                family.add_metric(labels, number)
            yield family
        yield _decision_times(now.counters.decision_times)


def samples(metric: Metric, now: Moment) -> list[tuple[tuple[str, ...], float]]:
    """Return the values of the labels, and the number, of each sample of *metric*."""
    value = metric.read(now)
    if not isinstance(value, Mapping):
        return [] if value is None else [((), value)]
    return [((key,) if isinstance(key, str) else key, number) for key, number in sorted(value.items())]


def _decision_times(times: Times) -> Family:
    text = "How long a decision about a CreateContainer request or a resize took, excluding disk and runtime."
    family = HistogramMetricFamily("criproxy_decision_seconds", text)
    family.add_metric([], buckets(DECISION_BUCKETS_S, times.counts), times.total_s)
    return family


def with_words(counted: Mapping[Any, int], words: Iterable[Any]) -> Numbers:
    """Return *counted* with 0 for missing *words*: Prometheus shows no increase for a series that did not exist."""
    return {**dict.fromkeys(words, 0), **counted}
