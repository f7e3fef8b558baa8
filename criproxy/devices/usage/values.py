"""Readings of the use of cards at one moment, and the grants of containers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from criproxy.devices.classes.vgpu_profiles import Quota

Quantity = Literal["memory", "cores"]
QUANTITIES = frozenset[str](get_args(Quantity))


class Process(NamedTuple):
    """A process, identified so that a later process with the same PID is a different one.

    A tuple, because each reading looks up all processes.
    """

    pid: int
    """In the host's namespace."""
    start_ticks: int
    """The start time: field 22 of ``/proc/<pid>/stat``."""


class ProcessUse(NamedTuple):
    """What one process uses of one card; a tuple, because each reading makes many of them."""

    process: Process
    card: str
    """The id of the card, as the device plugin offers it."""
    memory_mib: int = 0
    cores_percent: float | None = None
    """Of the card's computing units; None if the source does not report it."""
    container_id: str = ""
    """The container of the process; empty: none, or unknown."""

    def of(self, process: Process, container_id: str) -> "ProcessUse":
        """Return this use as that of a *process* in a container."""
        return ProcessUse(process, self.card, self.memory_mib, self.cores_percent, container_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """The total use of one card."""

    card: str
    memory_mib: int
    total_mib: int
    cores_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one source reports at one time."""

    kind: str
    """The name of the class."""
    at_s: float
    """On the monotonic clock."""
    processes: tuple[ProcessUse, ...] = ()
    cards: tuple[CardUse, ...] = ()
    problem: str = ""
    """Why the reading is incomplete, in one sentence; no container is judged by such a reading."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By card, why its use is unknown: no container is judged by its use of that card."""
    sampled_s: Mapping[str, float] = field(default_factory=dict)
    """By card, when the newest sample of its computing units was taken, by any clock; a card that is missing has a new
    sample in each reading."""
    unknown_keys: tuple[str, ...] = ()
    """Keys that criproxy does not know; not all of them, if there are many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A resource that is allocated to a container, as the daemon reports it."""

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
    """Whether no action may be taken against the container: its namespace is exempt."""

    @property
    def is_only_observed(self) -> bool:
        """Whether exceeding the quota has no consequences: the container is exempt, or something else enforces it."""
        return self.exempt or (self.quota is not None and not self.quota.watched)

    @property
    def title(self) -> str:
        """The full name of the container, for messages."""
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(slots=True, kw_only=True)
class ContainerUse:
    """What one container uses of one card; nobody changes it, but to make a frozen one takes three times as long."""

    container_id: str
    kind: str
    card: str
    memory_mib: int
    cores_percent: float | None = None
    processes: tuple[ProcessUse, ...] = field(default=(), repr=False, compare=False)
    """Those that use so much; not reported to the daemon."""
