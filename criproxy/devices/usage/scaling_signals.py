"""Signals for scaling replicas: the use of the node and of vGPUs, from the daemon or from recorded metrics."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from criproxy.devices.usage.scaling import Proposal, Target, by_pods, by_value

MetricName = Literal["cpu", "memory", "vgpu-memory", "vgpu-cores"]
METRICS: Mapping[MetricName, str] = {
    "cpu": "use of the node's CPUs",
    "memory": "use of the node's memory",
    "vgpu-memory": "mean use of the vGPUs' memory",
    "vgpu-cores": "mean use of the vGPUs' cores",
}
"""The metrics by which replicas can be scaled, with their descriptions."""
DEFAULT_PERCENT: Mapping[MetricName, float] = {"cpu": 70.0, "memory": 80.0, "vgpu-memory": 80.0, "vgpu-cores": 70.0}
Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value of one line of metrics; a value that is not finite is unknown."""
PREFIX = "criproxy_"
"""The prefix of criproxy's metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuSignal:
    """How much of the quota of its vGPU one container uses."""

    namespace: str
    pod: str
    profile: str
    memory_used: float | None = None
    """In bytes or MiB; None: unknown."""
    memory_limit: float | None = None
    """In the same unit; None: there is no memory quota."""
    cores_used: float | None = None
    cores_limit: float | None = None

    @property
    def memory_ratio(self) -> float | None:
        """The used part of the memory quota."""
        return _ratio(self.memory_used, self.memory_limit)

    @property
    def cores_ratio(self) -> float | None:
        """The used part of the quota of computing units."""
        return _ratio(self.cores_used, self.cores_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSignals:
    """The signals at one moment, of one node or of several."""

    cpu_ratio: float | None = None
    memory_ratio: float | None = None
    vgpus: tuple[VgpuSignal, ...] = ()
    free: Mapping[str, int] = field(default_factory=dict)
    """By profile, how many vGPUs are free; without an entry, this is unknown, or the profile is not offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuCount:
    """How many vGPUs of one profile are wanted."""

    profile: str
    given: int
    free: int | None
    """None: it is not known, such as while the device plugin does not run."""
    proposal: Proposal

    @property
    def wanted(self) -> int:
        """The number of vGPUs that should be allocated; the current one if their use is unknown."""
        return self.given if self.proposal.replicas is None else self.proposal.replicas

    @property
    def lacking(self) -> int | None:
        """How many of them do not exist; None: unknown."""
        if self.free is None:
            return None
        return max(self.wanted - self.given - self.free, 0)


def of_answer(values: Mapping[str, Any]) -> NodeSignals:
    """Return the signals in an answer to the command ``usage`` of the control socket."""
    return NodeSignals(
        cpu_ratio=values["node"]["cpu_ratio"],
        memory_ratio=values["node"]["memory_ratio"],
        vgpus=tuple(
            VgpuSignal(
                namespace=each["namespace"],
                pod=each["pod"],
                profile=each["profile"],
                memory_used=each["memory_mib"],
                memory_limit=each["memory_granted_mib"],
                cores_used=each["cores_percent"],
                cores_limit=each["cores_granted_percent"],
            )
            for each in values["containers"]
            if each["profile"]
        ),
        free=_summed((each["profile"], each["free"]) for each in values["profiles"]),
    )


def of_samples(samples: Iterable[Sample]) -> NodeSignals:
    """Return the signals in recorded metrics; for several nodes, the mean of their use."""
    ratios: dict[str, list[float]] = {}
    vgpus: dict[tuple[str, ...], dict[str, float]] = {}
    free: list[tuple[str, int]] = []
    for name, labels, value in samples:
        short = name.removeprefix(PREFIX)
        if short in ("node_cpu_utilization_ratio", "node_memory_utilization_ratio"):
            ratios.setdefault(short, []).append(value)
        elif short == "vgpu_free" and math.isfinite(value):
            free.append((labels.get("profile", ""), int(value)))
        elif short in _FIELDS:
            vgpus.setdefault(_identity(labels), {})[_FIELDS[short]] = value if math.isfinite(value) else math.nan
    return NodeSignals(
        cpu_ratio=_mean(ratios.get("node_cpu_utilization_ratio", [])),
        memory_ratio=_mean(ratios.get("node_memory_utilization_ratio", [])),
        vgpus=tuple(
            VgpuSignal(namespace=key[0], pod=key[1], profile=key[2], **amounts) for key, amounts in vgpus.items()
        ),
        free=_summed(free),
    )


_FIELDS = {
    "vgpu_memory_used_bytes": "memory_used",
    "vgpu_memory_limit_bytes": "memory_limit",
    "vgpu_sm_ratio": "cores_used",
    "vgpu_sm_limit_ratio": "cores_limit",
}


def _identity(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return namespace, pod, profile, container and card; Prometheus renames labels that its target also has."""
    names = "namespace", "pod", "container"
    namespace, pod, container = (labels.get(f"exported_{name}") or labels.get(name, "") for name in names)
    return namespace, pod, labels.get("profile", ""), container, labels.get("card", "")


def chosen(signals: NodeSignals, is_replica: Callable[[str, str], bool]) -> tuple[VgpuSignal, ...]:
    """Return the vGPUs of the pods that are replicas, according to their namespace and name."""
    return tuple(each for each in signals.vgpus if is_replica(each.namespace, each.pod))


def pods_of(vgpus: Iterable[VgpuSignal]) -> dict[tuple[str, str], list[VgpuSignal]]:
    """Group vGPUs by the namespace and name of their pods."""
    found: dict[tuple[str, str], list[VgpuSignal]] = {}
    for each in vgpus:
        found.setdefault((each.namespace, each.pod), []).append(each)
    return found


def applies(name: MetricName, vgpus: Iterable[VgpuSignal]) -> bool:
    """Whether replicas with *vgpus* have a metric: without a quota, they never have its ratio.

    A vGPU with a quota whose use is unknown has the metric: that its value is missing must not go unnoticed.
    """
    if name in ("cpu", "memory"):
        return True
    return any(each.cores_limit if name == "vgpu-cores" else each.memory_limit for each in vgpus)


def propose(
    name: MetricName, target: Target, current: int, signals: NodeSignals, vgpus: Iterable[VgpuSignal]
) -> Proposal:
    """Return the proposal of one metric for *current* replicas, which have *vgpus*."""
    if name in ("cpu", "memory"):
        return by_value(target, current, signals.cpu_ratio if name == "cpu" else signals.memory_ratio)
    pods = pods_of(vgpus).values()
    values = [_of_pod(own, cores=name == "vgpu-cores") for own in pods]
    return by_pods(target, current, values, max(current - len(values), 0))  # on other nodes, or without a vGPU yet


def count_vgpus(target: Target, signals: NodeSignals) -> list[VgpuCount]:
    """Return how many vGPUs of each profile are wanted, by the mean use of the allocated ones: of memory or cores."""
    profiles = sorted({each.profile for each in signals.vgpus} | set(signals.free))
    counts = []
    for profile in profiles:
        own = [each for each in signals.vgpus if each.profile == profile]
        proposal = by_pods(target, len(own), [_largest(each) for each in own])
        counts.append(VgpuCount(profile=profile, given=len(own), free=signals.free.get(profile), proposal=proposal))
    return counts


def _largest(vgpu: VgpuSignal) -> float | None:
    return max((each for each in (vgpu.memory_ratio, vgpu.cores_ratio) if each is not None), default=None)


def _of_pod(vgpus: Iterable[VgpuSignal], *, cores: bool) -> float | None:
    """Return how much a pod's vGPUs use of the sum of their quotas; None if the use of one is unknown."""
    amounts = [
        (each.cores_used, each.cores_limit) if cores else (each.memory_used, each.memory_limit) for each in vgpus
    ]
    limited = [(used, limit) for used, limit in amounts if limit]
    used = [used for used, _ in limited if used is not None]
    return _ratio(sum(used) if len(used) == len(limited) else None, sum(limit for _, limit in limited))


def _ratio(used: float | None, limit: float | None) -> float | None:
    return _known(used / limit) if used is not None and limit else None


def _mean(values: list[float]) -> float | None:
    return _known(sum(values) / len(values)) if values else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, count in pairs:
        total[name] = total.get(name, 0) + count
    return total
