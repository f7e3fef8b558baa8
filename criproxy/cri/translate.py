"""Message → model: only reads, and accepts any values.

Values that a field cannot express stay at the model's default. The only error is bytes that cannot be parsed.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from criproxy.cri import api_pb2 as api
from criproxy.cri import sizes, utf8
from criproxy.cri.stamp import Stamp, in_spec, read_stamp
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.attributes import ATTRIBUTES
from criproxy.model.controls import DEFAULTS, as_shown
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import Applied
from criproxy.model.resources import BEST_EFFORT_OOM_SCORE_ADJ, GUARANTEED_OOM_SCORE_ADJ
from criproxy.model.text.annotations import kept_of_pod
from criproxy.model.workload import Container, ContainerState, Pod, QosClass

M = TypeVar("M", bound=Message)

_IDENTITY = (
    "pod_sandbox_id",
    *(f"{part}.{name}" for part in ("config", "sandbox_config") for name in ("metadata", "linux")),
)
_MOST_NAMED = 3
"""How many strings an error names."""
_CGROUPFS = re.compile(r"(?:^|/)kubepods/(?:(burstable|besteffort)/)?pod[^/]+/?$")
_SYSTEMD = re.compile(r"(?:^|[/-])kubepods-(?:(burstable|besteffort)-)?pod[^/]+\.slice/?$")
_SLICE_OF_PODS = re.compile(r"(?:.*-)?kubepods\.slice")
_CLASSES = {None: QosClass.GUARANTEED, "burstable": QosClass.BURSTABLE, "besteffort": QosClass.BEST_EFFORT}
_STATES = {
    api.CONTAINER_CREATED: ContainerState.CREATED,
    api.CONTAINER_RUNNING: ContainerState.RUNNING,
    api.CONTAINER_EXITED: ContainerState.EXITED,
}


class UnreadableMessage(CriproxyError):
    """The bytes of a call are not a message of its type."""

    code = StatusCode.INVALID_ARGUMENT


class NotUtf8(UnreadableMessage):
    """A string of a message is not UTF-8. The rest can be viewed, but the message cannot be changed and sent on."""

    def __init__(self, kind: type[Message], strings: Sequence[str]) -> None:
        more = f" and {len(strings) - _MOST_NAMED} more" if len(strings) > _MOST_NAMED else ""
        self.strings = f"{', '.join(strings[:_MOST_NAMED])}{more}"
        """Which strings, such as ``config.args``."""
        super().__init__(f"{self.strings} of this {kind.DESCRIPTOR.full_name} is not UTF-8")


def read(kind: type[M], data: bytes) -> M:
    """Parse *data*; unknown fields are kept.

    Raises:
        UnreadableMessage: if it is not a *kind*.
        NotUtf8: if a string of it is not UTF-8: sent on, it would be another one.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        try:
            strings = utf8.invalid_strings(kind, data)
        except DecodeError:
            strings = ()
        if strings:
            raise NotUtf8(kind, strings) from error
        raise _unreadable(kind, data) from error


def view(kind: type[M], data: bytes, parts: Collection[str] = ()) -> M:
    """Parse *data* that is not sent on, or only *parts* of it: strings may have any bytes, see `utf8`.

    Raises:
        UnreadableMessage: if it is not a *kind*.
    """
    try:
        return utf8.parse_parts(kind, data, parts) if parts else utf8.parse(kind, data)
    except DecodeError as error:
        raise _unreadable(kind, data) from error


def view_identity(data: bytes) -> api.CreateContainerRequest:
    """Parse what identifies the container of a create, and its sizes, as `view` does.

    Raises:
        UnreadableMessage: if it is no create.
    """
    return view(api.CreateContainerRequest, data, _IDENTITY)


def _unreadable(kind: type[Message], data: bytes) -> UnreadableMessage:
    return UnreadableMessage(f"these {len(data)} bytes are no {kind.DESCRIPTOR.full_name}")


def qos_class(cgroup_parent: str, oom_score_adj: int = 0) -> QosClass:
    """The class of a pod from its cgroup's path (cgroupfs or systemd), else of a container from its oom_score_adj.

    Without either, as for a container of crictl, it is BestEffort.
    """
    if found := _CGROUPFS.search(cgroup_parent) or _SYSTEMD.search(cgroup_parent):
        return _CLASSES[found[1]]
    if oom_score_adj == GUARANTEED_OOM_SCORE_ADJ:
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE if 0 < oom_score_adj < BEST_EFFORT_OOM_SCORE_ADJ else QosClass.BEST_EFFORT


def pods_cgroup(cgroup_parent: str) -> str | None:
    """Return the cgroup above those of all pods, from the cgroup of one of a kubelet's pods.

    None for a pod of another program.
    """
    if found := _CGROUPFS.search(cgroup_parent):
        return f"{cgroup_parent[: found.start()]}/kubepods"
    if _SYSTEMD.search(cgroup_parent):
        slices = cgroup_parent.strip("/").split("/")
        above = [place for place, name in enumerate(slices, 1) if _SLICE_OF_PODS.fullmatch(name)]
        unit = slices[-1].partition("kubepods")[0] + "kubepods.slice"  # a kubelet may send the last slice only
        return "/".join(["", *slices[: above[0]]]) if above else _slice_path(unit)
    return None


def cgroup_of_pod(cgroup_parent: str) -> str:
    """Return the cgroup of a pod below the mount; a kubelet with the systemd driver may send the last slice only."""
    path = cgroup_parent.strip("/")
    return _slice_path(path).strip("/") if path.endswith(".slice") and "/" not in path else path


def pod(config: api.PodSandboxConfig, sandbox_id: str) -> Pod:
    """Return the pod of a sandbox configuration (RunPodSandbox, or the copy in CreateContainer)."""
    return _pod(config, sandbox_id, config.linux.cgroup_parent, sizes.pod_total(config.linux.resources))


def container(request: api.CreateContainerRequest, reservation: str, capacity_bytes: int = 0) -> Container:
    """Return the container of a create *request*, with a new *reservation* id.

    Without *capacity_bytes*, the memory of the node, the memory request of a Burstable container is unknown.
    """
    resources = request.config.linux.resources
    sandbox = request.sandbox_config
    qos = qos_class(sandbox.linux.cgroup_parent, resources.oom_score_adj)
    asked = sizes.sizes_created(resources, sandbox.linux.resources, qos, capacity_bytes)
    return Container(
        key=reservation,
        pod=request.pod_sandbox_id,
        name=request.config.metadata.name,
        attempt=request.config.metadata.attempt,
        pod_name=sandbox.metadata.name,
        namespace=sandbox.metadata.namespace,
        qos=qos,
        huge_pages=sizes.huge_pages(resources),
        reservation=reservation,
    ).resized(asked)


def has_cpuset(message: bytes) -> bool:
    """Whether an UpdateContainerResourcesRequest sets CPUs or memory nodes.

    Raises:
        UnreadableMessage: the message cannot be parsed.
    """
    linux = read(api.UpdateContainerResourcesRequest, message).linux
    return bool(linux.cpuset_cpus or linux.cpuset_mems)


def stamp_of(placed: Container, pod_cpu_milli: int = 0) -> Stamp:
    """Return the stamp for *placed*, whose pod has a total of *pod_cpu_milli*."""
    quota, request = placed.asked_quota, placed.memory_request_bytes
    return Stamp(
        reservation=placed.reservation,
        qos=placed.qos.value,
        cpu_milli=placed.cpu_milli,
        cpu_limit_milli=placed.cpu_limit_milli or 0,
        cpu_quota_us=quota.quota_us if quota else 0,
        cpu_period_us=quota.period_us if quota else 0,
        memory_limit_bytes=placed.memory_limit_bytes or 0,
        memory_request_low_bytes=request.low if request else 0,
        memory_request_high_bytes=request.high if request else 0,
        hints=";".join(map(format_cpuset, placed.hints)),
        stays=placed.stays,
        pod_cpu_milli=pod_cpu_milli,
        of_pod=placed.of_pod,
        kubelet_files=" ".join(placed.kubelet_files),
    )


def state(found: api.Container | api.ContainerStatus) -> ContainerState:
    """Return the state of a container as the runtime reports it; an unknown state counts as possibly running."""
    return _STATES.get(found.state, ContainerState.UNKNOWN)


def found_pod(item: api.PodSandbox, cgroup_parent: str = "", cpu_total_milli: int = 0) -> Pod:
    """Return the pod of a listed sandbox; lists have neither its cgroup (see `cgroup_parent_in`) nor its total CPU."""
    return _pod(item, item.id, cgroup_parent, cpu_total_milli, stopped=item.state == api.SANDBOX_NOTREADY)


def _pod(
    sandbox: api.PodSandboxConfig | api.PodSandbox, key: str, cgroup_parent: str, total: int, *, stopped: bool = False
) -> Pod:
    names, (labels, annotations) = sandbox.metadata, kept_of_pod(sandbox.labels, sandbox.annotations)
    return Pod(
        key=key,
        uid=names.uid,
        name=names.name,
        namespace=names.namespace,
        attempt=names.attempt,
        qos=qos_class(cgroup_parent),
        cgroup_parent=cgroup_parent,
        labels=labels,
        annotations=annotations,
        cpu_total_milli=total,
        stopped=stopped,
    )


def listed(item: api.Container) -> Container:
    """Return the identity of a listed container; lists do not contain its requests."""
    return Container(
        key=item.id,
        pod=item.pod_sandbox_id,
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        pod_name=item.labels.get("io.kubernetes.pod.name", ""),
        namespace=item.labels.get("io.kubernetes.pod.namespace", ""),
    )


def found_container(item: api.Container, reply: api.ContainerStatusResponse, capacity_bytes: int = 0) -> Container:
    """Return a container from a list and its verbose status: its identity and its requests.

    The requests come from our stamp, unless a resize has changed them since; without a stamp they come from the sizes
    in force. *capacity_bytes* is the memory of the node.
    """
    stamp = read_stamp(item.annotations)
    resources = reply.status.resources.linux
    qos = qos_class(cgroup_parent_in(reply.info), resources.oom_score_adj)
    asked = replace(
        listed(item),
        qos=qos if stamp is None else next((known for known in QosClass if known.value == stamp.qos), qos),
        state=state(reply.status),
    )
    if stamp:
        asked = replace(
            asked.resized(sizes.sizes_of_stamp(stamp)),
            reservation=stamp.reservation,
            hints=_stamped_hints(stamp),
            stays=stamp.stays,
        )
    elif files := set_files(reply):  # criproxy has not seen its create
        asked = replace(asked, kubelet_files=tuple(file for file, _ in files))
    total = stamp.pod_cpu_milli if stamp else None
    return asked.resized(sizes.sizes_in_force(resources, asked, capacity_bytes, total))


def _stamped_hints(stamp: Stamp) -> tuple[CpuSet, ...]:
    try:
        return tuple(parse_cpuset(nodes) for nodes in filter(None, stamp.hints.split(";")))
    except ValueError:
        return ()


def cgroup_parent_in(info: Mapping[str, str]) -> str:
    """Return the cgroup of the pod from the *info* of a verbose ContainerStatus, as in a sandbox configuration.

    Empty if the runtime does not report it; containerd and CRI-O do, in the OCI specification of the container.
    """
    return cgroup_in(info).rpartition("/")[0]


def cgroup_in(info: Mapping[str, str]) -> str:
    """Return the container's cgroup from the *info* of a verbose ContainerStatus, relative to the mount; or empty."""
    path = _found(info, "runtimeSpec", "linux", "cgroupsPath")
    if not isinstance(path, str):
        return ""
    unit, colon, scope = path.partition(":")  # systemd's notation is SLICE:PREFIX:NAME
    return f"{_slice_path(unit)}/{scope.replace(':', '-')}.scope" if colon else path


def pid_in(info: Mapping[str, str]) -> int | None:
    """Return the process id from the *info* of a verbose ContainerStatus; None if it has none or it is 0."""
    pid = _found(info, "pid")
    return pid if isinstance(pid, int) and pid > 0 else None


def set_files(reply: api.ContainerStatusResponse) -> tuple[tuple[str, str], ...]:
    """Return the files of `controls.DEFAULTS` that a container was given, and their values, from a verbose status."""
    unified = reply.status.resources.linux.unified or _found(reply.info, "runtimeSpec", "linux", "resources", "unified")
    if not isinstance(unified, Mapping):
        return ()
    return tuple(sorted((file, as_shown(file, str(unified[file]))) for file in DEFAULTS if file in unified))


def annotations_in(container_id: str, info: Mapping[str, str]) -> dict[str, str]:
    """Return our annotations in the OCI specification, from the *info* of a verbose ContainerStatus."""
    found = _found(info, "runtimeSpec", "annotations")
    if not isinstance(found, Mapping):
        return {}
    return {key: str(found[there]) for key, there in in_spec(container_id).items() if there in found}


def device_nodes_in(info: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the device nodes that the runtime made in a container, from the *info* of a verbose ContainerStatus.

    None if it does not report them. Nodes that a hook adds are not included.
    """
    linux = _found(info, "runtimeSpec", "linux")
    try:
        return tuple(str(node["path"]) for node in linux.get("devices") or ()) if isinstance(linux, dict) else None
    except (KeyError, TypeError):
        return None


def privileged_in(info: Mapping[str, str]) -> bool:
    """Whether a container is privileged, according to the *info* of a verbose ContainerStatus."""
    return bool(_found(info, "config", "linux", "security_context", "privileged"))


def _found(info: Mapping[str, str], *keys: str) -> Any:  # noqa: ANN401 (JSON of the runtime)
    """Return a part of the *info* of a verbose ContainerStatus; None if it is not there."""
    try:
        return reduce(getitem, keys, json.loads(info.get("info", "{}")))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _slice_path(unit: str) -> str:
    """``a-b.slice`` → ``/a.slice/a-b.slice``."""
    words = unit.removesuffix(".slice").split("-")
    return "".join(f"/{'-'.join(words[:count])}.slice" for count in range(1, len(words) + 1))


def applied(status: api.ContainerStatus) -> Applied | None:
    """Return what the runtime reports that a container has; None if its cpuset is missing or unreadable."""
    return _applied(status.resources.linux)


def applied_at_start(reply: api.ContainerStatusResponse) -> Applied | None:
    """Return what a created container starts with, from a verbose status: a plugin may have changed what was asked.

    None if the OCI specification names no CPUs, or the runtime does not report it.
    """
    linux = api.LinuxContainerResources()
    linux.CopyFrom(reply.status.resources.linux)
    cpu = _found(reply.info, "runtimeSpec", "linux", "resources", "cpu")
    cpu = cpu if isinstance(cpu, Mapping) else {}
    linux.cpuset_cpus, linux.cpuset_mems = str(cpu.get("cpus") or ""), str(cpu.get("mems") or "")
    return _applied(linux)


def _applied(linux: api.LinuxContainerResources) -> Applied | None:
    try:
        values: dict[str, Any] = {each.name: each.reported(linux) for each in ATTRIBUTES}
    except ValueError:
        return None
    return Applied(**values) if values["cpus"] else None
