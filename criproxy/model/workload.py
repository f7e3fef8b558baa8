"""Pods and containers as CRI shows them: identity, requests and limits, and state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.resources import MAX_MACHINE_MILLI, MAX_SHARES_MILLI, MIN_REQUEST_MILLI, CfsQuota, Interval

SHORT_ID = 12
"""Characters of an id that are shown to people."""


class QosClass(Enum):
    """Kubernetes' class of a pod; its containers inherit it."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerState(Enum):
    """The state of a container, as far as it is known."""

    CREATING = "creating"
    """Its place is reserved; the runtime has not answered yet."""
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    """It has ended or failed to start: it needs no CPU any more."""
    UNKNOWN = "unknown"
    """A call about it ended without an answer: it may run, so it keeps its place until the outcome is resolved."""


MAY_RUN = frozenset({ContainerState.RUNNING, ContainerState.UNKNOWN})
"""States in which a process of the container may be on a CPU now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod sandbox."""

    key: str
    """The runtime's sandbox id."""
    uid: str = ""
    name: str = ""
    namespace: str = ""
    attempt: int = 0
    qos: QosClass = QosClass.BEST_EFFORT
    cgroup_parent: str = ""
    """As in the sandbox configuration, in cgroupfs or systemd notation; empty if none was sent."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that a policy may read, see `model.text.annotations`."""
    cpu_total_milli: int = 0
    """The CPU of the whole pod, from the last message about its sandbox; 0 if that has none."""
    stopped: bool = False
    """Whether the sandbox has ended: no container starts in it any more."""

    @property
    def cap_milli(self) -> int | None:
        """The CPU of the whole pod if it is known exactly: CRI cannot express more than 256 CPUs."""
        return self.cpu_total_milli if MIN_REQUEST_MILLI < self.cpu_total_milli < MAX_SHARES_MILLI else None

    @property
    def title(self) -> str:
        """NAMESPACE/POD for people, without missing parts."""
        return "/".join(filter(None, (self.namespace, self.name))) or self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The requests and limits of a container that a resize can change."""

    cpu_milli: int = 0
    """Its own request; 0 with `of_pod`."""
    cpu_limit_milli: int | None = None
    cpu_quota: CfsQuota | None = None
    """The CPU limit as it was sent."""
    memory_limit_bytes: int | None = None
    memory_request_bytes: Interval | None = None
    of_pod: bool = False
    """As `Container.of_pod`."""
    kubelet_files: tuple[str, ...] = ()
    """As `Container.kubelet_files`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Sizes that a container should have, but for which there was no room."""

    sizes: Sizes
    since_s: float = 0.0
    """When they were first refused, in seconds since the epoch."""
    told: bool = False
    """Whether the runtime received them nevertheless: then the kubelet considers them applied, and does not repeat."""
    in_force: bool = False
    """If the runtime received them: whether with a resize, and not with the create of a restarted container."""


class Miss(Enum):
    """Why a container was not placed by the policy."""

    FAILED = "failed"
    """criproxy failed: its disk, its policy, or a handler that hung."""
    BYPASSED = "bypassed"
    UNFIT = "unfit"
    """The policy had no place for it when all containers were placed again, or after the store was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The mark of a container that was not placed by the policy."""

    why: Miss
    since_s: float = 0.0
    """When it was created, or started outside of its place, in seconds since the epoch."""
    unseen: bool = False
    """Whether nothing asked criproxy about that; `why` is then `Miss.BYPASSED`, which an older criproxy knows, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container and its requests."""

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
    """The request, as exactly as CRI shows it; `cpu_request_milli` has the possible values.

    With `of_pod`, what it counts: one container counts all that its siblings leave of the pod's total.
    """
    of_pod: bool = False
    """Whether it has no CPU request of its own, and shares the rest of its pod's total: pod-level resources."""
    cpu_limit_milli: int | None = None
    cpu_quota: CfsQuota | None = None
    """The limit as it was sent; `asked_quota` also derives it from `cpu_limit_milli`."""
    memory_limit_bytes: int | None = None
    memory_request_bytes: Interval | None = None
    """The request: exact for Guaranteed containers, an interval for Burstable ones; None if unknown."""
    state: ContainerState = ContainerState.CREATING
    reservation: str = ""
    """The reservation id, which its stamp contains; empty for a container that was started without criproxy."""
    hints: tuple[CpuSet, ...] = ()
    """The NUMA nodes next to each device that it should be close to."""
    huge_pages: tuple[HugePageRequest, ...] = ()
    """Those that its create asks for. Not stored: after a restart, its pages are among those that are not free."""
    warm: bool = False
    """Whether its cold start is over: its memory may be of all kinds."""
    stays: bool = False
    """Whether criproxy must not update it, because that could take its cards away."""
    kubelet_files: tuple[str, ...] = ()
    """The files of `controls.DEFAULTS` that the kubelet itself sets, for example for MemoryQoS; sorted. Classes leave
    them alone."""
    desired: Desired | None = None
    """Its desired sizes after a resize without room; None if it has the requested ones."""
    missed: Missed | None = None
    """Set if it was created while the policy was not asked; None once it has been placed."""

    @property
    def title(self) -> str:
        """NAMESPACE/POD/CONTAINER for people, without missing parts."""
        return "/".join(filter(None, (self.namespace, self.pod_name, self.name))) or self.key

    @property
    def has_id(self) -> bool:
        """Whether the runtime has created it: before that its key is its reservation, and no call can name it."""
        return self.key != self.reservation

    @property
    def is_owed_a_place(self) -> bool:
        """Whether the policy was not asked about it, and is still to place it."""
        return self.missed is not None and not self.stays

    def may_move(self, *, created: bool) -> bool:
        """Whether criproxy may update it; *created*: also before it was started."""
        return not self.stays and (created or self.state is not ContainerState.CREATED)

    @property
    def life(self) -> str:
        """The id of the container instance: constant from the reservation to the end, unlike the key."""
        return self.reservation or self.key

    @property
    def identity(self) -> tuple[str, str, int]:
        """Sandbox, name and attempt: equal for retries of the same create."""
        return self.pod, self.name, self.attempt

    @property
    def asked_quota(self) -> CfsQuota | None:
        """The CPU limit as the kubelet sent it, or would send it; None if there is none."""
        return self.cpu_quota or CfsQuota.of_limit(self.cpu_limit_milli)

    @property
    def cpu_request_milli(self) -> Interval:
        """All requests that CRI shows like this one: 0, 1 and 2 milli-CPU are the same, and 256 CPUs and more."""
        if self.cpu_milli <= MIN_REQUEST_MILLI:
            return Interval(0, self.cpu_milli)
        if self.cpu_milli < MAX_SHARES_MILLI or self.qos is QosClass.GUARANTEED:
            return Interval(self.cpu_milli, self.cpu_milli)
        return Interval(self.cpu_milli, max(self.cpu_milli, self.cpu_limit_milli or MAX_MACHINE_MILLI))

    @property
    def sizes(self) -> Sizes:
        """Its present sizes."""
        return Sizes(
            cpu_milli=0 if self.of_pod else self.cpu_milli,
            cpu_limit_milli=self.cpu_limit_milli,
            cpu_quota=self.asked_quota,
            memory_limit_bytes=self.memory_limit_bytes,
            memory_request_bytes=self.memory_request_bytes,
            of_pod=self.of_pod,
            kubelet_files=self.kubelet_files,
        )

    def same_cpu(self, sizes: Sizes) -> bool:
        """Whether *sizes* differ from its own at most in memory."""
        asked = sizes.of_pod, sizes.cpu_milli, sizes.cpu_limit_milli, sizes.cpu_quota
        own = self.sizes
        return asked == (own.of_pod, own.cpu_milli, own.cpu_limit_milli, own.cpu_quota)

    def resized(self, sizes: Sizes) -> "Container":
        """Return the container with another size, and so without desired sizes."""
        counted = self.cpu_milli if self.of_pod else MIN_REQUEST_MILLI
        return replace(
            self,
            cpu_milli=counted if sizes.of_pod else sizes.cpu_milli,
            of_pod=sizes.of_pod,
            cpu_limit_milli=sizes.cpu_limit_milli,
            cpu_quota=sizes.cpu_quota,
            memory_limit_bytes=sizes.memory_limit_bytes,
            memory_request_bytes=sizes.memory_request_bytes,
            kubelet_files=sizes.kubelet_files,
            desired=None,
        )
