"""A controller at the moment of a scrape, and the tables of metrics that are read from it.

Most metrics are a function; its name and its docstring are those that Prometheus sees.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from prometheus_client import Metric as Family

from criproxy.api.usage import usage_rows
from criproxy.api.views.status_check import WELL, Found
from criproxy.devices.usage.rows import CardRow
from criproxy.model.cpuset import CpuSet
from criproxy.model.incident import Incident
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller
from criproxy.node.counters import Counters
from criproxy.process.http.metrics import counter, gauge

MOST_LABEL = 253
"""The longest label, in characters: Kubernetes accepts no longer name."""
KIND = "device_class"
VGPU = ("namespace", "pod", "container", KIND, "profile", "card")
Numbers = Mapping[Any, float]
"""Numbers by the value of the only label, or by a tuple of the values of all labels."""


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

    family: Callable[..., Family]
    text: str
    """The help."""
    read: Callable[[Moment], float | Numbers | None]
    labels: tuple[str, ...] = ()

    def at(self, now: Moment, name: str) -> Family:
        """Return its family with the samples of a moment; there is none without a known value."""
        value = self.read(now)
        if isinstance(value, Mapping):
            samples = {(key,) if isinstance(key, str) else key: number for key, number in sorted(value.items())}
        else:
            samples = {} if value is None else {(): value}
        return self.family(f"criproxy_{name}", self.text, samples, *self.labels)


class MetricTable(dict[str, Metric]):
    """Metrics by name, without prefix and ``_total``."""

    def counter(self, *labels: str) -> Callable[[Read], Read]:
        """Add the decorated function as a counter."""
        return partial(self._add, counter, labels)

    def gauge(self, *labels: str) -> Callable[[Read], Read]:
        """Add the decorated function as a gauge."""
        return partial(self._add, gauge, labels)

    def _add(self, family: Callable[..., Family], labels: tuple[str, ...], read: Read) -> Read:
        self[read.__name__] = Metric(family, read.__doc__ or "", read, labels)
        return read


def with_words(counted: Mapping[Any, int], words: Iterable[Any]) -> Numbers:
    """Return *counted* with 0 for missing *words*: Prometheus shows no increase for a series that did not exist."""
    return {**dict.fromkeys(words, 0), **counted}
