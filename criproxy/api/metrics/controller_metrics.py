"""The metrics about the controller, its containers and the use of the node: one function for each, read at each scrape.

Labels are bounded: kinds of events, gRPC codes, states, the NUMA nodes of one machine, the containers with vGPUs and
the profiles of the policy file. docs/monitoring.md explains the metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from time import monotonic
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from criproxy.api.devices.usage import usage_rows
from criproxy.api.views.shortfalls import undersized
from criproxy.api.views.status_check import WELL, Found
from criproxy.devices.plugin.published import free_vgpus
from criproxy.devices.usage.rows import CardRow
from criproxy.model.cpuset import CpuSet
from criproxy.model.incident import Incident
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller
from criproxy.node.counters import DECISION_BUCKETS_S, Counters, Times
from criproxy.node.settings import OnError
from criproxy.placement.answers.shortfalls import shortfall, unplaced
from criproxy.placement.policies.api import free_of
from criproxy.process.failures import KINDS

MIB = 1 << 20
MOST_LABEL = 253
"""The longest label, in characters: Kubernetes accepts no longer name."""
_ASKED = [(source, outcome) for source in ("podresources", "checkpoint") for outcome in ("failed", "late")]
"""Outcomes of queries to the kubelet that are exported with 0 before they happen."""
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

    @cached_property
    def misplaced_ages_s(self) -> list[float]:
        """How long each misplaced container has been waiting."""
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


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: a function of the moment; its name and its docstring are those that Prometheus sees."""

    family: type[CounterMetricFamily | GaugeMetricFamily]
    labels: tuple[str, ...]
    read: Callable[[Moment], float | Numbers | None]
    """Returns the number, or the numbers by label; None if it is unknown."""


METRICS: dict[str, Metric] = {}
"""By name, without prefix and ``_total``."""
Read = TypeVar("Read", bound=Callable[[Moment], float | Numbers | None])


def _counter(*labels: str) -> Callable[[Read], Read]:
    return partial(_register, CounterMetricFamily, labels)


def _gauge(*labels: str) -> Callable[[Read], Read]:
    return partial(_register, GaugeMetricFamily, labels)


def _register(family: type[CounterMetricFamily | GaugeMetricFamily], labels: tuple[str, ...], read: Read) -> Read:
    METRICS[read.__name__] = Metric(family, labels, read)
    return read


def _with(counted: Mapping[Any, int], words: Iterable[Any]) -> Numbers:
    """Return *counted* with 0 for missing *words*: Prometheus shows no increase for a series that did not exist."""
    return {**dict.fromkeys(words, 0), **counted}


def _stocks(now: Moment) -> Mapping[str, int]:
    """Return the cards of the machine, by device class."""
    return {name: len(stock.cards) for name, stock in now.controller.devices.stocks.items()}


def _of_vgpus(now: Moment, value: Callable[[CardRow], float | None]) -> Numbers:
    """Return a number of each vGPU of which it is known."""
    return {labels: found for labels, row in now.vgpus.items() if (found := value(row)) is not None}


def _times(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor


KIND = "device_class"
VGPU = ("namespace", "pod", "container", KIND, "profile", "card")


@_counter("event")
def decisions(now: Moment) -> Numbers:
    """Changes of the node's state, by the kind of event that caused them."""
    return now.counters.decisions


@_counter("code")
def refusals(now: Moment) -> Numbers:
    """Calls from the kubelet that criproxy refused, by gRPC status code."""
    return _with(now.counters.refusals, ("RESOURCE_EXHAUSTED", "UNAVAILABLE"))


@_counter("way")
def fallbacks(now: Moment) -> Numbers:
    """Held calls in which criproxy itself failed, by what it did with them."""
    return _with(now.counters.fallbacks, [way.value for way in OnError])


@_counter("kind")
def failures(now: Moment) -> Numbers:
    """Failures of criproxy itself: calls, watchers, policies, reports, database rows."""
    return _with(now.controller.context.failures.counts, KINDS)


@_counter("outcome")
def updates(now: Moment) -> Numbers:
    """Updates to other containers: sent, and how many of these failed or were lost."""
    return {
        "sent": now.counters.updates_sent,
        "failed": now.counters.updates_failed,
        "lost": now.counters.updates_lost,
    }


@_counter("outcome")
def drift(now: Moment) -> Numbers:
    """Cpusets changed by another program: found, and how many of these were repaired immediately."""
    return {"found": now.counters.drift_found, "repaired": now.counters.drift_repaired}


@_counter("seen")
def exits(now: Moment) -> Numbers:
    """Containers that ended without a call, by what reported them."""
    return _with(now.counters.exits, ("events", "lists", "cgroups"))


@_counter("outcome")
def resyncs(now: Moment) -> Numbers:
    """Comparisons with the containers that the runtime lists."""
    return {"ok": now.counters.resyncs, "failed": now.counters.resync_failures}


@_counter("outcome")
def config_reloads(now: Moment) -> Numbers:
    """Reloads of the configuration: ok, or failed, in which case the old one stays."""
    return {"ok": now.counters.reloads_ok, "failed": now.counters.reloads_failed}


@_counter("how")
def config_tries_ended(now: Moment) -> Numbers:
    """Tries of a configuration that have ended, by what ended them."""
    return _with(now.counters.tries_ended, ("kept", "time", "file"))


@_counter()
def resizes_refused(now: Moment) -> float:
    """Refused resizes; the kubelet repeats each of them every second."""
    return now.counters.resizes_refused


@_counter()
def promotions(now: Moment) -> float:
    """Containers that got CPUs, a place or a size that they had lacked."""
    return now.counters.promotions


@_counter()
def policy_failures(now: Moment) -> float:
    """Events for which the policy raised an unexpected exception."""
    return now.counters.policy_failures


@_counter()
def policy_faults(now: Moment) -> float:
    """Layouts from a policy that broke an invariant and were not used."""
    return now.counters.policy_faults


@_counter()
def store_failures(now: Moment) -> float:
    """Writes to the state database that failed or took too long."""
    return now.counters.store_failures


@_counter()
def pod_file_failures(now: Moment) -> float:
    """Failed attempts to write the files of pods with cards."""
    return now.counters.pod_file_failures


@_counter()
def inquiries(now: Moment) -> float:
    """Calls without an answer about which criproxy asked the runtime."""
    return now.counters.unknown_outcomes


@_counter()
def adoptions(now: Moment) -> float:
    """Running containers that criproxy adopted, because it had not placed them."""
    return now.counters.adoptions


@_counter()
def conflicts_repaired(now: Moment) -> float:
    """Exclusive CPUs on which criproxy found a second container."""
    return now.counters.conflicts_repaired


@_gauge()
def misplaced_containers(now: Moment) -> float:
    """Containers that do not have their grant yet."""
    return len(now.misplaced_ages_s)


@_gauge()
def misplaced_age_seconds(now: Moment) -> float:
    """How long the oldest misplaced container has been waiting; 0 if there is none."""
    return max(now.misplaced_ages_s, default=0.0)


@_gauge()
def unpromoted_containers(now: Moment) -> float:
    """Containers that share CPUs only until they can be placed."""
    policy, node = now.controller.context.state.policy, now.node
    sharing = {*unplaced(node)}
    others = (key for key, each in node.containers.items() if each.missed and key not in sharing)
    return len(sharing) + sum(1 for key in others if shortfall(node, policy, key))


@_gauge()
def undersized_containers(now: Moment) -> float:
    """Containers without room for the size that they should have."""
    return sum(1 for _ in undersized(now.node))


@_gauge()
def store_current(now: Moment) -> float:
    """1 while the state on disk is up to date, else 0."""
    return now.controller.context.persister.failing_since_s is None


@_gauge()
def store_failing_seconds(now: Moment) -> float:
    """How long the state on disk has been out of date; 0 if it is not."""
    since_s = now.controller.context.persister.failing_since_s
    return 0.0 if since_s is None else monotonic() - since_s


@_gauge()
def resync_age_seconds(now: Moment) -> float | None:
    """How long ago criproxy last asked which containers are running."""
    last_s = now.counters.last_resync_s
    return None if last_s is None else monotonic() - last_s


@_gauge()
def config_problem(now: Moment) -> float:
    """1 while the configuration in effect is not the one in the file, else 0."""
    return now.controller.context.in_force.problem is not None


@_gauge()
def config_loaded_timestamp_seconds(now: Moment) -> float:
    """When the configuration in effect was loaded, in seconds since the epoch."""
    return now.controller.context.in_force.loaded.at_s


@_gauge()
def config_try_remaining_seconds(now: Moment) -> float:
    """Time until the former configuration comes back; 0 if none is being tried, negative if it cannot come back."""
    trial = now.controller.context.in_force.trial
    return trial.left_s if trial else 0.0


@_gauge()
def released(now: Moment) -> float:
    """1 while the node is released and no container is placed, else 0."""
    return bool(now.node.released)


@_gauge()
def ready(now: Moment) -> float:
    """1 if /readyz answers with 200, 0 while it answers with 503."""
    return now.found.not_ready is None


@_gauge()
def runtime_up(now: Moment) -> float:
    """1 if the runtime answered when criproxy last asked it, else 0."""
    return now.found.runtime_answers


@_gauge()
def kubelet_last_call_timestamp_seconds(now: Moment) -> float | None:
    """When a client last called or connected, in seconds since the epoch; absent if none did."""
    return now.last_call_s


@_gauge()
def updates_in_flight(now: Moment) -> float:
    """Updates to other containers that the runtime has not answered yet."""
    return now.counters.updates_in_flight


@_gauge()
def unknown_containers(now: Moment) -> float:
    """Containers for which it is unknown whether they exist or run."""
    return now.states["unknown"]


@_gauge("policy", "file", "hash")
def config_info(now: Moment) -> Numbers:
    """Always 1; the policy, its file and the hash of the file are labels. Equal files have the same hash."""
    context = now.controller.context
    return {(context.settings.policy_name, context.in_force.loaded.file, context.in_force.loaded.hash): 1}


@_gauge("kind")
def problems(now: Moment) -> Numbers:
    """What criproxy status --check finds wrong, by kind."""
    return now.found.counts()


@_counter(KIND, "finding")
def device_creates(now: Moment) -> Numbers:
    """CreateContainer requests by device class and finding: allocated, hidden, stripped and others."""
    counted = {(kind or "all", word): count for (kind, word), count in now.counters.devices.items()}
    return _with(counted, [(kind, "no-evidence") for kind in _stocks(now)])


@_counter("source", "outcome")
def device_evidence(now: Moment) -> Numbers:
    """Queries to the kubelet about allocated devices, by source and outcome."""
    return _with(now.counters.device_evidence, _ASKED)


@_counter(KIND, "source")
def device_allocations(now: Moment) -> Numbers:
    """CreateContainer requests with allocated cards, by device class and source of the evidence."""
    return now.counters.device_allocations


@_gauge(KIND)
def device_cards(now: Moment) -> Numbers:
    """Cards of the machine, by device class."""
    return _stocks(now)


@_gauge(KIND)
def device_cards_given(now: Moment) -> Numbers:
    """Cards that containers have, by device class."""
    return now.controller.devices.cards_given()


@_gauge()
def device_plugin_up(now: Moment) -> float | None:
    """1 while the device plugin reports to the daemon, else 0."""
    plugin = now.controller.device_plugin
    return plugin.runs if plugin.should_run else None


@_gauge(KIND, "resource", "health")
def device_ids(now: Moment) -> Numbers:
    """IDs that the device plugin advertises, by resource; each replica of a card counts."""
    return {
        (*key, health): count
        for key, counts in now.controller.device_plugin.ids().items()
        for health, count in zip(("healthy", "unhealthy"), counts, strict=True)
    }


@_gauge(KIND, "resource")
def device_ids_given(now: Moment) -> Numbers:
    """IDs of the device plugin that containers have, by resource."""
    return now.ids_given


@_gauge(KIND)
def device_unhealthy_cards(now: Moment) -> Numbers:
    """Cards that the device plugin has reported as unhealthy, and not yet as healthy again."""
    return Counter(each.device_class for each in now.incidents if not each.excess)


@_counter(KIND, "action")
def device_incidents(now: Moment) -> Numbers:
    """Reports of unhealthy cards, by action."""
    return now.counters.device_incidents


@_counter(KIND)
def device_stops(now: Moment) -> Numbers:
    """Containers that criproxy has stopped because of an unhealthy card."""
    return now.counters.device_stops


@_counter(KIND)
def device_creates_refused(now: Moment) -> Numbers:
    """CreateContainer requests that criproxy refused because of an unhealthy card; each repetition counts."""
    return _with(now.counters.device_creates_refused, _stocks(now))


@_gauge(KIND, "quantity")
def device_over_quota(now: Moment) -> Numbers:
    """Containers that are over the quota of a vGPU at this moment."""
    return Counter((each.device_class, each.excess.quantity.value) for each in now.incidents if each.excess)


@_counter(KIND, "quantity", "action")
def device_quota_incidents(now: Moment) -> Numbers:
    """Containers that were found over the quota of a vGPU, by action."""
    return now.counters.quota_incidents


@_counter(KIND, "quantity")
def device_quota_stops(now: Moment) -> Numbers:
    """Containers that criproxy has stopped because they were over the quota of a vGPU."""
    return now.counters.quota_stops


@_gauge("state")
def containers(now: Moment) -> Numbers:
    """Known containers by state."""
    return now.states


@_gauge("numa_node")
def exclusive_cpus(now: Moment) -> Numbers:
    """Exclusive CPUs."""
    return now.by_node(now.node.exclusive_cpus)


@_gauge("numa_node")
def shared_cpus(now: Moment) -> Numbers:
    """Shared CPUs: pods may use them, and they are not exclusive."""
    return now.by_node(now.node.shared_cpus)


@_gauge("numa_node")
def free_cpus(now: Moment) -> Numbers:
    """Shared CPUs that can become exclusive: not reserved, isolated, in a balloon or in a used pool."""
    return now.by_node(free_of(now.controller.context.state.policy, now.node).cpus)


@_gauge()
def node_cpu_utilization_ratio(now: Moment) -> float | None:
    """Share of the node's CPU time that is busy, 0 to 1."""
    return now.controller.node_use.cpu_ratio()


@_gauge()
def node_memory_utilization_ratio(now: Moment) -> float | None:
    """Share of the node's memory that is in use, 0 to 1."""
    return now.controller.node_use.memory_ratio()


@_gauge()
def usage_watcher_up(now: Moment) -> float | None:
    """1 while the watcher reports the usage of cards, else 0."""
    usage = now.controller.card_usage
    return usage.is_current if usage.report else None


@_gauge(*VGPU)
def vgpu_memory_used_bytes(now: Moment) -> Numbers:
    """Card memory that a container with a vGPU uses."""
    return _of_vgpus(now, lambda row: _times(row.use.memory_mib if row.use else None, MIB))


@_gauge(*VGPU)
def vgpu_memory_limit_bytes(now: Moment) -> Numbers:
    """Memory quota of a vGPU."""
    return _of_vgpus(now, lambda row: _times(row.memory_limit_mib, MIB))


@_gauge(*VGPU)
def vgpu_sm_ratio(now: Moment) -> Numbers:
    """Share of the card's compute that a container with a vGPU uses, 0 to 1."""
    return _of_vgpus(now, lambda row: _times(row.use.cores_percent if row.use else None, 0.01))


@_gauge(*VGPU)
def vgpu_sm_limit_ratio(now: Moment) -> Numbers:
    """Compute quota of a vGPU, 0 to 1."""
    return _of_vgpus(now, lambda row: _times(row.cores_limit_percent, 0.01))


@_gauge(KIND, "profile")
def vgpu_free(now: Moment) -> Numbers:
    """The vGPUs that no container has, by profile."""
    plugin = now.controller.device_plugin
    return free_vgpus(plugin.report, now.ids_given) if plugin.report and plugin.runs else {}


class ControllerCollector(Collector):
    """Reads all metrics of `METRICS`, and the times of decisions, at each scrape."""

    def __init__(self, moment: Callable[[], Moment]) -> None:
        self._moment = moment

    def describe(self) -> Iterable[Family]:
        """Return nothing, which prevents the registration from collecting."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; those without a known value have no sample."""
        now = self._moment()
        for name, metric in METRICS.items():
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
    names = [*map(str, DECISION_BUCKETS_S), "+Inf"]
    buckets: list[tuple[str, float]] = list(zip(names, accumulate(times.counts), strict=True))
    text = "How long a decision about a CreateContainer request or a resize took, excluding disk and runtime."
    family = HistogramMetricFamily("criproxy_decision_seconds", text)
    family.add_metric([], buckets, times.total_s)
    return family
