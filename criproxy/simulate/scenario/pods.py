"""The pods of a scenario file → pods and containers as the proxy would see them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from criproxy.config.mistakes import did_you_mean
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.resources import (
    MAX_SHARES,
    CfsQuota,
    Interval,
    milli_to_shares,
    oom_score_adj_to_request,
    quota_to_milli,
    request_to_oom_score_adj,
    shares_to_milli,
)
from criproxy.model.text.amounts import parse_bytes, parse_milli
from criproxy.model.text.annotations import DOMAINS
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.simulate.scenario.place import At

QOS = {"guaranteed": QosClass.GUARANTEED, "burstable": QosClass.BURSTABLE, "besteffort": QosClass.BEST_EFFORT}
SIZE_KEYS = ("cpu", "cpu_req", "cpu_lim", "mem", "mem_req", "mem_lim")
POD_KEYS = ("pod", "ns", "qos", "ann", "labels", "containers", "count", "init", "pod_cpu", "hugepages", *SIZE_KEYS)
DEFAULT_MEMORY_BYTES = 100_000_000
HINTS = "hint_numas"
"""Stands among the annotations for what a device would say: the NUMA nodes next to it."""


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
        """What the kubelet tells of the whole pod: the most that its containers need at the same time."""
        inits = [each.amounts.cpu_request_milli for each in self.containers if each.init]
        regular = sum(each.amounts.cpu_request_milli for each in self.containers if not each.init)
        return seen_milli(self.pod_cpu_milli or max(regular, *inits, 0))

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


def seen_milli(cpu_milli: int) -> int:
    """A request after its way through CRI, where it is written as shares."""
    return shares_to_milli(milli_to_shares(cpu_milli))


def seen_sizes(amounts: Amounts, qos: QosClass, capacity_bytes: int) -> Sizes:
    """*amounts* after their way through CRI, where the kubelet writes them as shares, quota and oom_score_adj.

    Args:
        amounts: of the container.
        qos: of its pod.
        capacity_bytes: memory of the machine; 0 where it is not known.
    """
    shares = milli_to_shares(amounts.cpu_request_milli)
    cpu = shares_to_milli(shares)
    quota = CfsQuota.of_limit(amounts.cpu_limit_milli)
    limit = quota_to_milli(quota.quota_us, quota.period_us) if quota else None
    if qos is QosClass.GUARANTEED and shares >= MAX_SHARES:
        cpu = max(cpu, limit or 0)
    return Sizes(
        cpu_milli=cpu,
        cpu_limit_milli=limit,
        cpu_quota=quota,
        memory_limit_bytes=amounts.memory_limit_bytes or None,
        memory_request_bytes=_seen_memory_request(amounts, qos, capacity_bytes),
    )


def _seen_memory_request(amounts: Amounts, qos: QosClass, capacity_bytes: int) -> Interval | None:
    limit_bytes = amounts.memory_limit_bytes
    if qos is QosClass.GUARANTEED:
        return Interval(limit_bytes, limit_bytes) if limit_bytes else None
    if qos is QosClass.BEST_EFFORT or not capacity_bytes:
        return None
    score = request_to_oom_score_adj(amounts.memory_request_bytes, capacity_bytes)
    request = oom_score_adj_to_request(score, capacity_bytes)
    if request is None or not limit_bytes:
        return request
    return Interval(min(request.low, limit_bytes), min(request.high, limit_bytes))


def read_pods(at: At, fields: Mapping[str, At]) -> PodPlan:
    """The pod of a `create`, of which *fields* are all entries."""
    name = fields["pod"].text()
    qos = QOS[fields["qos"].one_of(tuple(QOS))] if "qos" in fields else QosClass.BEST_EFFORT
    whole = fields.get("pod_cpu")
    if whole and not any(key in fields for key in ("cpu", "cpu_req", "cpu_lim")):
        fields = {**fields, "cpu": whole}  # a container without a size of its own comes with that of its pod
    annotations, hints = _annotations(fields.get("ann"))
    containers = _containers(at, fields, name, qos)
    if "hugepages" in fields:
        containers = [replace(c, huge_pages=_huge_pages(fields["hugepages"])) for c in containers]
    known = {container.name for container in containers}
    for scope, nodes in hints.items():
        if scope and scope not in known:
            raise fields["ann"].wrong(f"there is no container {scope!r} in {name}{did_you_mean(scope, known)}")
        containers = [replace(c, hints=nodes) if scope in ("", c.name) else c for c in containers]
    return PodPlan(
        name=name,
        namespace=fields["ns"].text() if "ns" in fields else "default",
        qos=qos,
        containers=tuple(containers),
        annotations=annotations,
        labels={key: value.text() for key, value in fields["labels"].entries().items()} if "labels" in fields else {},
        pod_cpu_milli=whole.read(parse_milli) if whole else 0,
    )


def _huge_pages(at: At) -> tuple[HugePageRequest, ...]:
    """What each container may use, by the size of a page."""
    return tuple(HugePageRequest(page_size(each), each.read(parse_bytes)) for each in at.entries().values())


def page_size(at: At) -> int:
    """The size in bytes that is the key of a value."""
    return replace(at, data=str(at.path[-1])).read(parse_bytes)


def _containers(at: At, fields: Mapping[str, At], pod: str, qos: QosClass) -> list[ContainerPlan]:
    if "containers" in fields:
        if "count" in fields:
            raise fields["count"].wrong("containers are listed: leave count out", of_key=True)
        regular = [_listed(item, fields, qos) for item in fields["containers"].items()]
    else:
        amounts = _amounts(at, fields, qos)
        count = fields["count"].number(1) if "count" in fields else 1
        of_pod = _is_of_pod(fields, qos)
        regular = [ContainerPlan(f"{pod}c{index}", amounts, of_pod=of_pod) for index in range(count)]
    inits = fields["init"].number() if "init" in fields else 0
    first = [replace(regular[0], name=f"{pod}c{index}i", hints=(), init=True) for index in range(inits)]
    return first + regular


def _listed(at: At, pod_fields: Mapping[str, At], qos: QosClass) -> ContainerPlan:
    own = at.fields(("name", *SIZE_KEYS), required=("name",))
    sizes = {key: field for key, field in pod_fields.items() if key in SIZE_KEYS}
    of_pod = _is_of_pod({**pod_fields, **own}, qos)
    return ContainerPlan(own["name"].text(), _amounts(at, {**sizes, **own}, qos), of_pod=of_pod)


def _is_of_pod(fields: Mapping[str, At], qos: QosClass) -> bool:
    """Whether a container with these *fields* has no CPU size of its own in a Burstable pod with pod-level resources.

    In a Guaranteed pod, the container comes with the total, and the engine recognises it.
    """
    whole = fields.get("pod_cpu")
    is_bare = fields.get("cpu") is whole and "cpu_req" not in fields and "cpu_lim" not in fields
    return qos is QosClass.BURSTABLE and whole is not None and is_bare


def read_resize(at: At, fields: Mapping[str, At], qos: QosClass, before: Amounts) -> Amounts:
    """The new size in a `resize`, of which *fields* are all entries; what it does not name stays as it was *before*."""
    if not any(key in fields for key in SIZE_KEYS):
        raise at.wrong(f"needs a new size: {', '.join(SIZE_KEYS)}")
    return _amounts(at, fields, qos, before)


def _amounts(at: At, fields: Mapping[str, At], qos: QosClass, before: Amounts | None = None) -> Amounts:
    given = [key for key in SIZE_KEYS if key in fields]
    if qos is QosClass.BEST_EFFORT:
        if given:
            raise fields[given[0]].wrong(
                "a besteffort pod asks for nothing: leave it out or give another qos", of_key=True
            )
        return Amounts()
    cpu = {key: _size(fields, key) for key in ("cpu", "cpu_req", "cpu_lim")}
    memory = {key: _size(fields, key) for key in ("mem", "mem_req", "mem_lim")}
    cpus_before = (before.cpu_request_milli, before.cpu_limit_milli) if before else (None, None)
    bytes_before = (before.memory_request_bytes, before.memory_limit_bytes) if before else (None, None)
    request, limit = _pair(*cpu.values(), *cpus_before)
    memory_request, memory_limit = _pair(*memory.values(), *bytes_before)
    if not before and not any(key in fields for key in memory):
        memory_request = memory_limit = DEFAULT_MEMORY_BYTES
    limited = limit and memory_limit and (request, memory_request) == (limit, memory_limit)
    if qos is QosClass.GUARANTEED and not limited:
        raise at.wrong("a guaranteed pod needs cpu, and every request equal to its limit")
    return Amounts(request or 0, limit, memory_request or 0, memory_limit)


def _size(fields: Mapping[str, At], key: str) -> int | None:
    """Milli-CPU or bytes; 0 for ``none``, None where it is not given."""
    at = fields.get(key)
    if at is None:
        return None
    if at.data == "none":
        return 0
    return at.read(parse_milli if key.startswith("cpu") else parse_bytes)


def _pair(
    both: int | None, request: int | None, limit: int | None, request_before: int | None, limit_before: int | None
) -> tuple[int | None, int | None]:
    """Request and limit; the API server sets a request that is missing to the limit."""
    limit = next((value for value in (limit, both, limit_before) if value is not None), None)
    request = next((value for value in (request, both, request_before, limit) if value is not None), None)
    return request, limit or None


def _annotations(at: At | None) -> tuple[dict[str, str], dict[str, tuple[CpuSet, ...]]]:
    """Annotations with their full names, and hints by container (empty: all)."""
    annotations: dict[str, str] = {}
    hints: dict[str, tuple[CpuSet, ...]] = {}
    for name, value in at.entries().items() if at else ():
        key, slash, scope = name.partition("/")
        if key == HINTS:
            hints[scope.removeprefix("container.") if scope != "pod" else ""] = (value.read(parse_cpuset),)
        else:
            text = json.dumps(value.data) if isinstance(value.data, dict | list) else value.text()
            annotations[name if _is_full(key) else f"{key}.{DOMAINS[0]}{slash}{scope}"] = text
    return annotations, hints


def _is_full(key: str) -> bool:
    return any(key == domain or key.endswith(f".{domain}") for domain in DOMAINS)
