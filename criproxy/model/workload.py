"""Pods and containers as CRI shows them: who they are, what they asked for, how far they have come."""

from dataclasses import dataclass
from enum import Enum


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
    """The request."""
    cpu_limit_milli: int | None = None
    memory_limit_bytes: int | None = None
    state: ContainerState = ContainerState.CREATING
    reservation: str = ""
    """Under which its place was reserved, and which its stamp carries; empty for one that we found running."""

    @property
    def title(self) -> str:
        """NAMESPACE/POD/CONTAINER for people, without the parts that nobody sent."""
        return "/".join(part for part in (self.namespace, self.pod_name, self.name) if part) or self.key

    @property
    def identity(self) -> tuple[str, str, int]:
        """Sandbox, name and attempt: a retry of the same create has the same."""
        return self.pod, self.name, self.attempt
