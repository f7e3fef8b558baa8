"""What the embedded runtime knows: sandboxes and containers, found by id prefix, with reserved names.

How it says no is one exception, with containerd's codes and texts. Values and look-ups; what the calls do is in
`sandboxes` and `containers`, what they answer in `views`.
"""

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from criproxy.cri import api_pb2 as cri
from criproxy.errors import CriproxyError, StatusCode
from lab.emulator.records.cpusets import Cpuset

_KEPT_IF_ZERO = ("cpu_period", "cpu_quota", "cpu_shares", "cpuset_cpus", "cpuset_mems")


class Refusal(CriproxyError):
    """Ends a call with *code* and *text*; nothing is sent beside them."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = code

    @property
    def text(self) -> str:
        """The grpc-message."""
        return str(self)

    @property
    def missing(self) -> bool:
        """Whether there is no such object, which removals take for success."""
        return self.status is StatusCode.NOT_FOUND

    def within(self, prefix: str) -> "Refusal":
        """Return the same refusal with *prefix* before its text, as containerd wraps errors."""
        return Refusal(self.status, f"{prefix}: {self}")


def unknown(text: str) -> Refusal:
    """Return what containerd answers to most mistakes: Go errors without a code become UNKNOWN."""
    return Refusal(StatusCode.UNKNOWN, text)


def not_found() -> Refusal:
    """Return the bare error of a missing object, to be wrapped."""
    return Refusal(StatusCode.NOT_FOUND, "not found")


def new_id() -> str:
    """Return a fresh id of 64 hexadecimal digits."""
    return secrets.token_hex(32)


@dataclass(slots=True, eq=False)
class Sandbox:
    """A pod's sandbox; `listed` caches its entry in a list reply and is None after a change."""

    id: str
    config: cri.PodSandboxConfig
    runtime_handler: str = ""
    created_ns: int = field(default_factory=time.time_ns)
    ready: bool = True
    listed: bytes | None = None

    @property
    def name(self) -> str:
        """The name that containerd reserves."""
        return sandbox_name(self.config.metadata)

    @property
    def state(self) -> cri.PodSandboxState:
        """Whether it is ready."""
        return cri.SANDBOX_READY if self.ready else cri.SANDBOX_NOTREADY

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the pod."""
        return self.config.labels


@dataclass(slots=True, eq=False)
class Container:
    """A container; *resources* is what its spec says, *cpuset* what its cgroup says while it has one.

    *pid* is 0 where no files show its process.
    """

    id: str
    sandbox: Sandbox
    name: str
    config: cri.ContainerConfig
    image_id: str
    resources: cri.LinuxContainerResources
    created_ns: int = field(default_factory=time.time_ns)
    started_ns: int = 0
    finished_ns: int = 0
    state: cri.ContainerState = cri.CONTAINER_CREATED
    starting: bool = False
    pid: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    cpuset: Cpuset | None = None
    listed: bytes | None = None
    added: dict[str, str] = field(default_factory=dict)
    """Annotations of its specification that plugins have added."""
    unreadable: str = ""
    """Why its status cannot be told; empty where it can."""

    @property
    def state_name(self) -> str:
        """The state as containerd writes it in errors."""
        return cri.ContainerState.Name(self.state)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the container."""
        return self.config.labels

    @property
    def cgroup(self) -> str:
        """The path of its cgroup below each controller."""
        return f"{self.sandbox.config.linux.cgroup_parent or '/k8s.io'}/{self.id}"

    def exited(self, exit_code: int, reason: str, message: str = "") -> None:
        """Note the end of its process, or that it never got one."""
        self.state, self.exit_code, self.reason, self.message = cri.CONTAINER_EXITED, exit_code, reason, message
        self.finished_ns = time.time_ns()
        self.starting, self.pid, self.cpuset, self.listed = False, 0, None, None


Record = TypeVar("Record", Sandbox, Container)


@dataclass(slots=True)
class Records:
    """Every sandbox and container, in the order of creation, and the names that are taken."""

    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unlisted: frozenset[str] = frozenset()
    """Ids that no list has."""

    def reserve(self, name: str, owner: str) -> None:
        """Take *name* for the id *owner*; a Refusal says who has it."""
        holder = self.names.setdefault(name, owner)
        if holder != owner:
            raise unknown(f'name "{name}" is reserved for "{holder}"')

    def sandbox(self, prefix: str) -> Sandbox:
        """Return the sandbox whose id starts with *prefix*, or raise a Refusal."""
        return _by_prefix(self.sandboxes, prefix)

    def container(self, prefix: str) -> Container:
        """Return the container whose id starts with *prefix*, or raise a Refusal."""
        return _by_prefix(self.containers, prefix)

    def of_sandbox(self, sandbox: Sandbox) -> list[Container]:
        """Return the containers of one sandbox."""
        return [container for container in self.containers.values() if container.sandbox is sandbox]

    def full_id(self, table: Mapping[str, Record], prefix: str) -> str:
        """Return the id that *prefix* stands for in a filter; itself where it stands for none or several."""
        found = [prefix] if prefix in table else _matching(table, prefix)
        return found[0] if len(found) == 1 else prefix


def sandbox_name(metadata: cri.PodSandboxMetadata) -> str:
    """Return the name that containerd reserves for a sandbox."""
    return f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"


def container_name(metadata: cri.ContainerMetadata, pod: cri.PodSandboxMetadata) -> str:
    """Return the name that containerd reserves for a container."""
    return f"{metadata.name}_{pod.name}_{pod.namespace}_{pod.uid}_{metadata.attempt}"


def selected(records: Iterable[Record], wanted: Mapping[str, str]) -> Iterable[Record]:
    """Yield the records that have every wanted label with its value."""
    for record in records:
        if all(record.labels.get(key) == value for key, value in wanted.items()):
            yield record


def _by_prefix(table: Mapping[str, Record], prefix: str) -> Record:
    exact = table.get(prefix)
    if exact is not None:
        return exact
    if not prefix:
        raise unknown("Prefix can't be empty")
    found = _matching(table, prefix)
    if len(found) > 1:
        raise unknown(f"Multiple IDs found with provided prefix: {prefix}")
    if not found:
        raise not_found()
    return table[found[0]]


def _matching(table: Mapping[str, Record], prefix: str) -> list[str]:
    return [identifier for identifier in table if prefix and identifier.startswith(prefix)]


def as_created(asked: cri.LinuxContainerResources) -> cri.LinuxContainerResources:
    """Return what the spec of a new container says; the swap limit follows the memory limit."""
    resources = cri.LinuxContainerResources()
    resources.CopyFrom(asked)
    if asked.memory_limit_in_bytes and not asked.memory_swap_limit_in_bytes:
        resources.memory_swap_limit_in_bytes = asked.memory_limit_in_bytes
    return resources


def merged(old: cri.LinuxContainerResources, asked: cri.LinuxContainerResources) -> cri.LinuxContainerResources:
    """Return *old* with what *asked* sets: zero and empty keep, huge pages append, oom_score_adj is ignored."""
    resources = cri.LinuxContainerResources()
    resources.CopyFrom(old)
    for name in _KEPT_IF_ZERO:
        value = getattr(asked, name)
        if value:
            setattr(resources, name, value)
    if asked.memory_limit_in_bytes:
        resources.memory_limit_in_bytes = asked.memory_limit_in_bytes
    swap_bytes = asked.memory_swap_limit_in_bytes or asked.memory_limit_in_bytes
    if swap_bytes:
        resources.memory_swap_limit_in_bytes = swap_bytes
    resources.hugepage_limits.extend(asked.hugepage_limits)
    for key, value in asked.unified.items():
        resources.unified[key] = value
    return resources
