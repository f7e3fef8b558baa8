"""The metrics about cards, the device plugin and vGPUs; the latter are signals for scaling pods.

Labels are bounded by the device classes, the containers with vGPUs, and the profiles of the policy file.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from criproxy.api.metrics.moment import KIND, VGPU, MetricTable, Moment, Numbers, with_words
from criproxy.devices.plugin.published import free_vgpus
from criproxy.devices.usage.rows import CardRow

METRICS = MetricTable()
MIB = 1 << 20
_ASKED = [(source, outcome) for source in ("podresources", "checkpoint") for outcome in ("failed", "late")]
"""Outcomes of queries to the kubelet that are exported with 0 before they happen."""


@METRICS.counter(KIND, "finding")
def device_creates(now: Moment) -> Numbers:
    """CreateContainer requests by device class and finding: allocated, hidden, stripped and others."""
    counted = {(kind or "all", word): count for (kind, word), count in now.counters.devices.items()}
    return with_words(counted, [(kind, "no-evidence") for kind in _stocks(now)])


@METRICS.counter("source", "outcome")
def device_evidence(now: Moment) -> Numbers:
    """Queries to the kubelet about allocated devices, by source and outcome."""
    return with_words(now.counters.device_evidence, _ASKED)


@METRICS.counter(KIND, "source")
def device_allocations(now: Moment) -> Numbers:
    """CreateContainer requests with allocated cards, by device class and source of the evidence."""
    return now.counters.device_allocations


@METRICS.gauge(KIND)
def device_cards(now: Moment) -> Numbers:
    """Cards of the machine, by device class."""
    return _stocks(now)


@METRICS.gauge(KIND)
def device_cards_given(now: Moment) -> Numbers:
    """Cards that containers have, by device class."""
    return now.controller.devices.cards_given()


@METRICS.gauge()
def device_plugin_up(now: Moment) -> float | None:
    """1 while the device plugin reports to the daemon, else 0."""
    plugin = now.controller.device_plugin
    return plugin.runs if plugin.should_run else None


@METRICS.gauge(KIND, "resource", "health")
def device_ids(now: Moment) -> Numbers:
    """IDs that the device plugin advertises, by resource; each replica of a card counts."""
    return {
        (*key, health): count
        for key, counts in now.controller.device_plugin.ids().items()
        for health, count in zip(("healthy", "unhealthy"), counts, strict=True)
    }


@METRICS.gauge(KIND, "resource")
def device_ids_given(now: Moment) -> Numbers:
    """IDs of the device plugin that containers have, by resource."""
    return now.ids_given


@METRICS.gauge(KIND)
def device_unhealthy_cards(now: Moment) -> Numbers:
    """Cards that the device plugin has reported as unhealthy, and not yet as healthy again."""
    return Counter(each.device_class for each in now.incidents if not each.excess)


@METRICS.counter(KIND, "action")
def device_incidents(now: Moment) -> Numbers:
    """Reports of unhealthy cards, by action."""
    return now.counters.device_incidents


@METRICS.counter(KIND)
def device_stops(now: Moment) -> Numbers:
    """Containers that criproxy has stopped because of an unhealthy card."""
    return now.counters.device_stops


@METRICS.counter(KIND)
def device_creates_refused(now: Moment) -> Numbers:
    """CreateContainer requests that criproxy refused because of an unhealthy card; each repetition counts."""
    return with_words(now.counters.device_creates_refused, _stocks(now))


@METRICS.gauge(KIND, "quantity")
def device_over_quota(now: Moment) -> Numbers:
    """Containers that are over the quota of a vGPU at this moment."""
    return Counter((each.device_class, each.excess.quantity.value) for each in now.incidents if each.excess)


@METRICS.counter(KIND, "quantity", "action")
def device_quota_incidents(now: Moment) -> Numbers:
    """Containers that were found over the quota of a vGPU, by action."""
    return now.counters.quota_incidents


@METRICS.counter(KIND, "quantity")
def device_quota_stops(now: Moment) -> Numbers:
    """Containers that criproxy has stopped because they were over the quota of a vGPU."""
    return now.counters.quota_stops


@METRICS.gauge()
def usage_watcher_up(now: Moment) -> float | None:
    """1 while the watcher reports the usage of cards, else 0."""
    usage = now.controller.card_usage
    return usage.is_current if usage.report else None


@METRICS.gauge(*VGPU)
def vgpu_memory_used_bytes(now: Moment) -> Numbers:
    """Card memory that a container with a vGPU uses."""
    return _of_vgpus(now, lambda row: _times(row.use.memory_mib if row.use else None, MIB))


@METRICS.gauge(*VGPU)
def vgpu_memory_limit_bytes(now: Moment) -> Numbers:
    """Memory quota of a vGPU."""
    return _of_vgpus(now, lambda row: _times(row.memory_limit_mib, MIB))


@METRICS.gauge(*VGPU)
def vgpu_sm_ratio(now: Moment) -> Numbers:
    """Share of the card's compute that a container with a vGPU uses, 0 to 1."""
    return _of_vgpus(now, lambda row: _times(row.use.cores_percent if row.use else None, 0.01))


@METRICS.gauge(*VGPU)
def vgpu_sm_limit_ratio(now: Moment) -> Numbers:
    """Compute quota of a vGPU, 0 to 1."""
    return _of_vgpus(now, lambda row: _times(row.cores_limit_percent, 0.01))


@METRICS.gauge(KIND, "profile")
def vgpu_free(now: Moment) -> Numbers:
    """The vGPUs that no container has, by profile."""
    plugin = now.controller.device_plugin
    return free_vgpus(plugin.report, now.ids_given) if plugin.report and plugin.runs else {}


def _stocks(now: Moment) -> Mapping[str, int]:
    """Return the cards of the machine, by device class."""
    return {name: len(stock.cards) for name, stock in now.controller.devices.stocks.items()}


def _of_vgpus(now: Moment, value: Callable[[CardRow], float | None]) -> Numbers:
    """Return a number of each vGPU of which it is known."""
    return {labels: found for labels, row in now.vgpus.items() if (found := value(row)) is not None}


def _times(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
