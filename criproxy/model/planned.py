"""Pods and containers that do not exist: as somebody specifies them, and as the proxy would see them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from criproxy.model import resources
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.workload import Container, Pod, QosClass, Sizes


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a container's specification says; None where it says nothing."""

    cpu_request_milli: int = 0
    cpu_limit_milli: int | None = None
    memory_request_bytes: int = 0
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """A container to be."""

    name: str
    amounts: Amounts
    hints: tuple[CpuSet, ...] = ()
    init: bool = False
    """Whether it ends before the next one is created."""
    of_pod: bool = False
    """Whether it has no CPU size of its own, beside pod-level resources."""
    huge_pages: tuple[HugePageRequest, ...] = ()

    def container(self, key: str, pod: Pod, capacity_bytes: int, cards: Iterable[CpuSet] = ()) -> Container:
        """The container with this key in *pod*; *cards*: the NUMA nodes next to each card that it gets."""
        found = Container(
            key=key,
            pod=pod.key,
            name=self.name,
            pod_name=pod.name,
            namespace=pod.namespace,
            qos=pod.qos,
            hints=(*self.hints, *cards),
            huge_pages=self.huge_pages,
        )
        sizes = seen_sizes(self.amounts, pod.qos, capacity_bytes)
        return found.resized(replace(sizes, cpu_milli=0, of_pod=True) if self.of_pod else sizes)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod to be."""

    name: str
    namespace: str
    qos: QosClass
    containers: tuple[ContainerPlan, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    pod_cpu_milli: int = 0
    """What the pod as a whole asks for (pod-level resources); 0 where it says nothing."""

    @property
    def cpu_total_milli(self) -> int:
        """What the kubelet tells of the whole pod, after its way through CRI, where it is written as shares."""
        asked_milli = self.pod_cpu_milli or self.most(lambda each: each.cpu_request_milli)
        return resources.shares_to_milli(resources.milli_to_shares(asked_milli))

    def most(self, amount: Callable[[Amounts], int]) -> int:
        """The most of an amount that its containers ask for at the same time: init containers come one by one."""
        inits = [amount(each.amounts) for each in self.containers if each.init]
        return max(sum(amount(each.amounts) for each in self.containers if not each.init), *inits, 0)

    def pod(self, key: str, name: str) -> Pod:
        """The pod with this key and name."""
        return Pod(
            key=key,
            uid=f"uid-{key}",
            name=name,
            namespace=self.namespace,
            qos=self.qos,
            labels=self.labels,
            annotations=self.annotations,
            cpu_total_milli=self.cpu_total_milli,
        )


def seen_sizes(amounts: Amounts, qos: QosClass, capacity_bytes: int) -> Sizes:
    """*amounts* after their way through CRI, where the kubelet writes them as shares, quota and oom_score_adj.

    Args:
        amounts: of the container.
        qos: of its pod.
        capacity_bytes: memory of the machine; 0 where it is not known.
    """
    shares = resources.milli_to_shares(amounts.cpu_request_milli)
    cpu = resources.shares_to_milli(shares)
    quota = resources.CfsQuota.of_limit(amounts.cpu_limit_milli)
    limit = resources.quota_to_milli(quota.quota_us, quota.period_us) if quota else None
    if qos is QosClass.GUARANTEED and shares >= resources.MAX_SHARES:
        cpu = max(cpu, limit or 0)
    return Sizes(
        cpu_milli=cpu,
        cpu_limit_milli=limit,
        cpu_quota=quota,
        memory_limit_bytes=amounts.memory_limit_bytes or None,
        memory_request_bytes=_seen_memory_request(amounts, qos, capacity_bytes),
    )


def _seen_memory_request(amounts: Amounts, qos: QosClass, capacity_bytes: int) -> resources.Interval | None:
    limit_bytes = amounts.memory_limit_bytes
    if qos is QosClass.GUARANTEED:
        return resources.Interval(limit_bytes, limit_bytes) if limit_bytes else None
    if qos is QosClass.BEST_EFFORT or not capacity_bytes:
        return None
    score = resources.request_to_oom_score_adj(amounts.memory_request_bytes, capacity_bytes)
    request = resources.oom_score_adj_to_request(score, capacity_bytes)
    if request is None or not limit_bytes:
        return request
    return resources.Interval(min(request.low, limit_bytes), min(request.high, limit_bytes))
