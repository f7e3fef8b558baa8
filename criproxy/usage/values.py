"""What is known of the use of cards at one moment, and who was promised what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from criproxy.devices.vgpu_profiles import Quota

Quantity = Literal["memory", "cores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that cannot be mistaken for another one to which its number is given later."""

    pid: int
    """In the host's namespace."""
    start_ticks: int
    """When it started, as field 22 of ``/proc/<pid>/stat`` says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What one process uses of one card."""

    process: Process
    card: str
    """The id of the card, as the device plugin offers it."""
    memory_mib: int = 0
    cores_percent: float | None = None
    """Of the card's computing units; None where its backend does not know."""
    container_id: str = ""
    """The container to which it belongs; empty: none, or it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """What all together use of one card."""

    card: str
    memory_mib: int
    total_mib: int
    cores_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one backend reports at one time."""

    kind: str
    """The name of the class."""
    at_s: float
    """On the monotonic clock."""
    processes: tuple[ProcessUse, ...] = ()
    cards: tuple[CardUse, ...] = ()
    problem: str = ""
    """Why it is not complete, in one sentence; nobody is judged by such a reading."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By card, why nothing is known of it: nobody is judged by what he uses of that card."""
    sampled_s: Mapping[str, float] = field(default_factory=dict)
    """By card, when the newest sample of its computing units was taken, by any clock; a card that lacks has a new one
    in each reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the daemon says that a container has been given."""

    container_id: str
    namespace: str
    pod: str
    container: str
    pod_uid: str
    kind: str
    resource: str
    ids: tuple[str, ...]
    """As the kubelet allocated them."""
    cards: tuple[str, ...]
    quota: Quota | None = None
    """None: the container has whole cards or replicas, and no quota."""
    exempt: bool = False
    """Whether nothing may be done about it: its namespace is exempt."""

    @property
    def is_only_observed(self) -> bool:
        """Whether it may exceed its quota without consequences: it is exempt, or something else enforces the quota."""
        return self.exempt or (self.quota is not None and not self.quota.watched)

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """What one container uses of one card."""

    container_id: str
    kind: str
    card: str
    memory_mib: int
    cores_percent: float | None = None
    processes: tuple[ProcessUse, ...] = field(default=(), repr=False)
