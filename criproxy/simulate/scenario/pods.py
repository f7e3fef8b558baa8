"""The pods of a scenario file → pods and containers as the proxy would see them."""

import json
from collections.abc import Mapping
from dataclasses import replace

from criproxy.config.mistakes import did_you_mean
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.planned import Amounts, ContainerPlan, PodPlan
from criproxy.model.text.amounts import parse_bytes, parse_milli
from criproxy.model.text.annotations import DOMAINS, has_domain
from criproxy.model.workload import QosClass
from criproxy.simulate.scenario.place import At

QOS = {"guaranteed": QosClass.GUARANTEED, "burstable": QosClass.BURSTABLE, "besteffort": QosClass.BEST_EFFORT}
SIZE_KEYS = ("cpu", "cpu_req", "cpu_lim", "mem", "mem_req", "mem_lim")
POD_KEYS = ("pod", "ns", "qos", "ann", "labels", "containers", "count", "init", "pod_cpu", "hugepages", *SIZE_KEYS)
DEFAULT_MEMORY_BYTES = 100_000_000
HINTS = "hint_numas"
"""Stands among the annotations for what a device would say: the NUMA nodes next to it."""


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
            annotations[name if has_domain(key) else f"{key}.{DOMAINS[0]}{slash}{scope}"] = text
    return annotations, hints
