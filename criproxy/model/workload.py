"""Pods and containers as CRI shows them: identity, requests and limits, and state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from criproxy.model.cpuset import CpuSet
from criproxy.model.resources import MAX_MACHINE_MILLI, MAX_SHARES_MILLI, MIN_REQUEST_MILLI, CfsQuota, Interval

SHORT_ID = 12
"""Characters by which people know a container."""


class QosClass(Enum):
    """Kubernetes' class of a pod; its containers inherit it."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerState(Enum):
    """How far a container has come, as far as we know."""

    CREATING = "creating"
    """Its place is reserved; the runtime has not answered yet."""
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    """It ran or failed to start: it needs no CPU any more."""
    UNKNOWN = "unknown"
    """A call about it ended without an answer: it may run, so it keeps its place until the runtime was asked."""


MAY_RUN = frozenset({ContainerState.RUNNING, ContainerState.UNKNOWN})
"""States in which a process of the container may be on a CPU now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod sandbox."""

    key: str
    """The sandbox id that the runtime gave."""
    uid: str = ""
    name: str = ""
    namespace: str = ""
    attempt: int = 0
    qos: QosClass = QosClass.BEST_EFFORT
    cgroup_parent: str = ""
    """As in the sandbox configuration, cgroupfs or systemd notation; empty where none was sent."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those that a policy may read, see `model.annotations`."""
    cpu_total_milli: int = 0
    """The CPU of the whole pod, by the last message about its sandbox; 0 where that has none."""
    stopped: bool = False
    """Whether the sandbox has ended: no container starts in it any more."""

    @property
    def cap_milli(self) -> int | None:
        """The CPU of the whole pod where it is known exactly: CRI does not tell 256 CPUs from more of them."""
        return self.cpu_total_milli if MIN_REQUEST_MILLI < self.cpu_total_milli < MAX_SHARES_MILLI else None

    @property
    def title(self) -> str:
        """NAMESPACE/POD for people, without missing parts."""
        return "/".join(filter(None, (self.namespace, self.name))) or self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a container asks for: the part of it that a resize changes."""

    cpu_milli: int = 0
    cpu_limit_milli: int | None = None
    cpu_quota: CfsQuota | None = None
    """The limit as it was sent."""
    memory_limit_bytes: int | None = None
    memory_request_bytes: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Sizes that a container should have and has not, because there was no room."""

    sizes: Sizes
    since_s: float = 0.0
    """When they were refused first, in seconds since the epoch."""
    told: bool = False
    """Whether the runtime was sent them all the same: the kubelet takes them for applied then, and asks no more."""
    in_force: bool = False
    """Of those that it was sent: whether it was at a resize, and not at the create of a container that came back."""


class Miss(Enum):
    """Why a container shares although the policy would have it otherwise."""

    FAILED = "failed"
    """Criproxy itself failed: its disk, its policy, a handler that hung."""
    BYPASSED = "bypassed"
    UNFIT = "unfit"
    """The policy had no place for it when all containers were placed anew, or when the store was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """That a container came without being placed as the policy says."""

    why: Miss
    since_s: float = 0.0
    """When it came, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container and what it asked for."""

    key: str
    """The runtime's id; until it has one, the reservation id."""
    pod: str
    """The sandbox id."""
    name: str
    attempt: int = 0
    pod_name: str = ""
    namespace: str = ""
    qos: QosClass = QosClass.BEST_EFFORT
    cpu_milli: int = 0
    """The request, as exactly as CRI shows it; `cpu_request_milli` says where it may be another."""
    cpu_limit_milli: int | None = None
    cpu_quota: CfsQuota | None = None
    """The limit as it was sent; `asked_quota` also knows it where only `cpu_limit_milli` is known."""
    memory_limit_bytes: int | None = None
    memory_request_bytes: Interval | None = None
    """The request: exact for Guaranteed containers, an interval for Burstable ones; None where nothing is known."""
    state: ContainerState = ContainerState.CREATING
    reservation: str = ""
    """Under which its place was reserved, and which its stamp carries; empty for one that we found running."""
    hints: tuple[CpuSet, ...] = ()
    """For each thing that it shall be close to, such as a device: the NUMA nodes next to it."""
    warm: bool = False
    """Whether it has run for as long as its annotation ``cold-start`` says: its memory may be of all kinds then."""
    stays: bool = False
    """Whether no update of ours may reach it: that could take its cards away."""
    desired: Desired | None = None
    """What it should have beyond its sizes: a resize without room; None where it has what was asked for."""
    missed: Missed | None = None
    """Set where it came while the policy was not asked; None once it has been placed."""

    @property
    def title(self) -> str:
        """NAMESPACE/POD/CONTAINER for people, without missing parts."""
        return "/".join(filter(None, (self.namespace, self.pod_name, self.name))) or self.key

    @property
    def has_id(self) -> bool:
        """Whether the runtime has made it: before that its key is its reservation, and no call can name it."""
        return self.key != self.reservation

    @property
    def is_owed_a_place(self) -> bool:
        """Whether it is wherever there was room when the policy was not asked about it, and is to be placed."""
        return self.missed is not None and not self.stays

    @property
    def life(self) -> str:
        """What stays the same from the reservation to the end, while the key becomes the runtime's id."""
        return self.reservation or self.key

    @property
    def identity(self) -> tuple[str, str, int]:
        """Sandbox, name and attempt: a retry of the same create has the same."""
        return self.pod, self.name, self.attempt

    @property
    def asked_quota(self) -> CfsQuota | None:
        """The CPU limit as the kubelet sent it, or as it would have; None where there is none."""
        return self.cpu_quota or CfsQuota.of_limit(self.cpu_limit_milli)

    @property
    def cpu_request_milli(self) -> Interval:
        """All requests that look like this one: to CRI 0, 1 and 2 milli-CPU are the same, and 256 CPUs and more."""
        if self.cpu_milli <= MIN_REQUEST_MILLI:
            return Interval(0, self.cpu_milli)
        if self.cpu_milli < MAX_SHARES_MILLI or self.qos is QosClass.GUARANTEED:
            return Interval(self.cpu_milli, self.cpu_milli)
        return Interval(self.cpu_milli, max(self.cpu_milli, self.cpu_limit_milli or MAX_MACHINE_MILLI))

    @property
    def sizes(self) -> Sizes:
        """What it asks for."""
        return Sizes(
            cpu_milli=self.cpu_milli,
            cpu_limit_milli=self.cpu_limit_milli,
            cpu_quota=self.asked_quota,
            memory_limit_bytes=self.memory_limit_bytes,
            memory_request_bytes=self.memory_request_bytes,
        )

    def same_cpu(self, sizes: Sizes) -> bool:
        """Whether *sizes* differ from its own in memory at the most."""
        asked = sizes.cpu_milli, sizes.cpu_limit_milli, sizes.cpu_quota
        return asked == (self.cpu_milli, self.cpu_limit_milli, self.asked_quota)

    def resized(self, sizes: Sizes) -> "Container":
        """The same container with another size, and so without one that it should have beyond that."""
        return replace(
            self,
            cpu_milli=sizes.cpu_milli,
            cpu_limit_milli=sizes.cpu_limit_milli,
            cpu_quota=sizes.cpu_quota,
            memory_limit_bytes=sizes.memory_limit_bytes,
            memory_request_bytes=sizes.memory_request_bytes,
            desired=None,
        )
