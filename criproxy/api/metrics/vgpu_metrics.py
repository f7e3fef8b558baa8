"""The metrics about the use of the node and of vGPUs: signals for scaling pods.

A metric exists only if its value is known. Labels are bounded by the containers with vGPUs, and by the profiles of the
policy file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_LABELS = ["namespace", "pod", "container", "device_class", "profile", "card"]
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuUse:
    """A container with a vGPU."""

    labels: Sequence[str]
    """As `_LABELS` names them."""
    memory_mib: int | None = None
    """None if unknown."""
    memory_limit_mib: int | None = None
    """None if it has no memory quota."""
    cores_percent: float | None = None
    cores_limit_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """All values at one moment."""

    node_cpu_ratio: float | None = None
    node_memory_ratio: float | None = None
    vgpus: Sequence[VgpuUse] = ()
    free: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The number of free vGPUs, by class and profile."""
    watcher_up: bool | None = None
    """Whether the watcher reports; None if it never did."""


class VgpuCollector(Collector):
    """Converts a new snapshot to metrics at each scrape."""

    def __init__(self, measure: Callable[[], Signals]) -> None:
        self._measure = measure

    def describe(self) -> Iterable[Metric]:
        """Return nothing, which prevents the registration from collecting."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with known values."""
        signals = self._measure()
        for name, text, value in (
            (
                "node_cpu_utilization_ratio",
                "Share of the node's CPU time that is busy, 0 to 1.",
                signals.node_cpu_ratio,
            ),
            (
                "node_memory_utilization_ratio",
                "Share of the node's memory that is in use, 0 to 1.",
                signals.node_memory_ratio,
            ),
            ("usage_watcher_up", "1 while the watcher reports the usage of cards, else 0.", signals.watcher_up),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"criproxy_{name}", text, value=value)
        yield from _vgpus(signals.vgpus)
        if signals.free:
            text = "vGPUs that no container has, by profile."
            free = GaugeMetricFamily("criproxy_vgpu_free", text, labels=["device_class", "profile"])
            for key, count in sorted(signals.free.items()):
                free.add_metric(list(key), count)
            yield free


def _vgpus(vgpus: Sequence[VgpuUse]) -> Iterator[Metric]:
    series: tuple[tuple[str, str, Callable[[VgpuUse], float | None]], ...] = (
        ("memory_used_bytes", "Card memory that a container with a vGPU uses.", lambda use: _of(use.memory_mib)),
        ("memory_limit_bytes", "Memory quota of a vGPU.", lambda use: _of(use.memory_limit_mib)),
        ("sm_ratio", "Share of the card's compute that a container with a vGPU uses, 0 to 1.", _cores),
        ("sm_limit_ratio", "Compute quota of a vGPU, 0 to 1.", _cores_limit),
    )
    for name, text, value in series:
        known = [(use.labels, found) for use in vgpus if (found := value(use)) is not None]
        if known:
            family = GaugeMetricFamily(f"criproxy_vgpu_{name}", text, labels=_LABELS)
            for labels, found in known:
                family.add_metric(list(labels), found)
            yield family


def _of(mib: int | None) -> float | None:
    return None if mib is None else mib * MIB


def _cores(use: VgpuUse) -> float | None:
    return None if use.cores_percent is None else use.cores_percent / 100


def _cores_limit(use: VgpuUse) -> float | None:
    return None if use.cores_limit_percent is None else use.cores_limit_percent / 100
