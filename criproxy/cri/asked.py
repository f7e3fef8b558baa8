"""Describes the requests in a message: the numbers that the kubelet sent, and the requests that follow from them."""

from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri.pods import EPHEMERAL, INIT, SIDECAR, ContainerSpec
from criproxy.cri.translate import qos_class
from criproxy.model.cpuset import cpus_text
from criproxy.model.resources import DEFAULT_PERIOD_US, MIN_SHARES
from criproxy.model.text.amounts import format_bytes, format_interval, format_milli
from criproxy.model.workload import Container, QosClass

_ROLES = {INIT: "an init container", SIDECAR: "a sidecar (it restarts always)", EPHEMERAL: "an ephemeral container"}
_FACTS = "cpu_shares cpu_quota cpu_period memory_limit_in_bytes oom_score_adj cpuset_cpus cpuset_mems".split()


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests in one message."""

    sentences: tuple[str, ...]
    facts: dict[str, str | int]
    """The fields of the message that are not empty, by CRI's names."""


def asked(
    resources: api.LinuxContainerResources,
    container: Container,
    cgroup_parent: str = "",
    capacity_bytes: int = 0,
    spec: ContainerSpec | None = None,
) -> Asked:
    """Describe the *resources* of a create.

    Args:
        resources: the resources in a CreateContainer.
        container: the container with the sizes that were derived from them.
        cgroup_parent: the cgroup parent of its sandbox, as the kubelet sent it.
        capacity_bytes: the memory of the node, which is needed to interpret oom_score_adj.
        spec: what the pod's specification says, if the kubelet serves it.
    """
    sentences = [
        _cpu_request(resources, container),
        _cpu_limit(resources, container),
        _memory(resources, container, capacity_bytes, spec),
        _class(resources, container, cgroup_parent),
    ]
    pages = ((format_bytes(each.limit_bytes), format_bytes(each.size_bytes)) for each in container.huge_pages)
    sentences += [f"{limit} in huge pages of {size}" for limit, size in pages]
    if resources.cpuset_cpus:
        sentences.append(f"the kubelet sent {cpus_text(resources.cpuset_cpus)}, which criproxy does not use")
    if spec and spec.role in _ROLES:
        sentences.append(f"{_ROLES[spec.role]}, from the kubelet's Pods API")
    role = spec.role if spec else ""
    more = _facts(resources, cgroup_parent=cgroup_parent, node_memory_bytes=capacity_bytes, role=role)
    return Asked(tuple(sentences), more)


def asked_anew(resources: api.LinuxContainerResources, container: Container) -> Asked:
    """Describe the *resources* of an UpdateContainerResources of *container*, in which empty or 0 means unchanged."""
    sentences: list[str] = []
    if resources.cpu_shares:
        sentences.append(_cpu_request(resources, container))
    if resources.cpu_quota:
        sentences.append(_cpu_limit(resources, container))
    if resources.memory_limit_in_bytes:
        sentences.append(_memory(resources, container, 0, None))
    return Asked(tuple(sentences), _facts(resources))


def _facts(resources: api.LinuxContainerResources, **more: str | int) -> dict[str, str | int]:
    facts = {name: getattr(resources, name) for name in _FACTS} | more
    return {name: value for name, value in facts.items() if value}


def _cpu_request(resources: api.LinuxContainerResources, container: Container) -> str:
    shares = resources.cpu_shares
    if shares <= 0:
        return "no CPU request (no cpu_shares)"
    request = format_interval(container.cpu_request_milli, format_milli)
    many = " (the kubelet sends this for all of them)" if shares <= MIN_SHARES else ""
    return f"CPU request {request}, from cpu_shares {shares}{many}"


def _cpu_limit(resources: api.LinuxContainerResources, container: Container) -> str:
    if resources.cpu_quota <= 0 or container.cpu_limit_milli is None:
        return "no CPU limit" + (f" (cpu_quota {resources.cpu_quota})" if resources.cpu_quota else "")
    period_us = resources.cpu_period if resources.cpu_period > 0 else DEFAULT_PERIOD_US
    limit = format_milli(container.cpu_limit_milli)
    return f"CPU limit {limit}, from cpu_quota {resources.cpu_quota} µs of {period_us} µs"


def _memory(
    resources: api.LinuxContainerResources, container: Container, capacity_bytes: int, spec: ContainerSpec | None
) -> str:
    limit, request = container.memory_limit_bytes, container.memory_request_bytes
    words = f"memory limit {format_bytes(limit)}" if limit else "no memory limit"
    if not resources.oom_score_adj or request is None or container.qos is not QosClass.BURSTABLE:
        return words
    amount = f"{words}; memory request {format_interval(request, format_bytes)}"
    if spec and spec.memory_request_bytes == request.low == request.high:
        return f"{amount}, from the kubelet's Pods API"
    return f"{amount}, from oom_score_adj {resources.oom_score_adj} on a node with {format_bytes(capacity_bytes)}"


def _class(resources: api.LinuxContainerResources, container: Container, cgroup_parent: str) -> str:
    name = container.qos.value
    if qos_class(cgroup_parent) is not QosClass.BEST_EFFORT or "besteffort" in cgroup_parent:
        return f"class {name}, from its pod's cgroup {cgroup_parent}"
    if resources.oom_score_adj:
        return f"class {name}, from oom_score_adj {resources.oom_score_adj}"
    return f"class {name}: the message names none"
