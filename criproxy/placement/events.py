"""What can happen to a node, as values in the past tense (or, for a held create, about to happen)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Applied
from criproxy.model.incident import Incident
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Places
from criproxy.model.workload import Container, ContainerState, Pod, Sizes


@dataclass(frozen=True)
class _About:
    """An event about one pod or container, and nothing else."""

    key: str


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The runtime created a sandbox."""

    pod: Pod
    inherits: Mapping[str, CpuSet] = field(default_factory=dict)
    """By container name, the exclusive CPUs of this pod when its former sandbox was stopped, if that was just now:
    those that are still free are kept for it again."""


@dataclass(frozen=True, slots=True)
class PodResized:
    """The kubelet set another CPU total for the pod; the sizes of its containers follow in separate calls."""

    key: str
    cpu_total_milli: int
    """As `Pod.cpu_total_milli`."""


class PodStopped(_About):
    """The sandbox was stopped, and with it every container in it."""


class PodNotReady(_About):
    """The sandbox has ended without a call, or the runtime does not have it: no container starts in it any more.

    Its running containers may continue.
    """


class PodGone(_About):
    """The sandbox was removed, and with it every container in it."""


@dataclass(frozen=True, slots=True)
class ContainerCreating:
    """A create is held: reserve a place. The container's key is a new reservation id."""

    container: Container


@dataclass(frozen=True, slots=True)
class ContainerCreated:
    """The runtime created the container of the reservation."""

    reservation: str
    key: str
    """The runtime's id."""


class ContainerStarted(_About):
    """The container runs."""


class ColdStartEnded(_About):
    """The cold start of the container is over: place it again, with memory of all kinds."""


@dataclass(frozen=True)
class ContainerExited(_About):
    """The container stopped, exited or failed to start: its place is free, the runtime still knows it."""

    ended_s: float = 0.0
    """When, in seconds since the epoch, if that is known to have been earlier; 0: now."""


def happened_s(event: object, at_s: float) -> float:
    """Return when what *event* tells has happened, if it was decided about at *at_s*; in seconds since the epoch."""
    return (event.ended_s if isinstance(event, ContainerExited) else 0.0) or at_s


class ContainerGone(_About):
    """The container was removed, or its create failed."""


class UnknownOutcome(_About):
    """A create or start of the container ended without an answer; it keeps its grant."""


@dataclass(frozen=True, slots=True)
class UpdateApplied:
    """The container has these values (read from its cgroup or, before its start, from the runtime's reply)."""

    key: str
    applied: Applied


@dataclass(frozen=True, slots=True)
class ContainerResized:
    """The kubelet resizes the container, which may be running: place it again, if possible on its present CPUs."""

    key: str
    sizes: Sizes
    """All sizes, including unchanged ones."""
    cpu_total_milli: int = 0
    """The CPU of its pod, if the resize shows it: the call that changed it may have been missed; otherwise 0."""


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """There is no room for a size that the kubelet requests for the container, which keeps its present size."""

    key: str
    sizes: Sizes
    """All sizes that were requested."""
    at_s: float = 0.0
    """In seconds since the epoch."""
    believed: bool = False
    """Whether the kubelet believes that the container has this size, so that it does not repeat the resize."""


class Promoted(_About):
    """There may be room for what the container should have: exclusive CPUs, or a size that was refused before.

    If there is, the policy places it; otherwise nothing changes.
    """


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The policy passed with this event is new, or has new options; ends a release."""

    apply_all: bool = False
    """Whether to place all containers again; otherwise only new ones, and unplaced containers share CPUs."""
    configuration: str = ""
    """For `Node.configuration`."""
    keeps_release: bool = False
    """Whether a released node stays released: the configuration is the former one, which was missing for a while."""
    back: Places | None = None
    """Set if a tried configuration goes back: the places of the containers before the try."""
    at_s: float = 0.0
    """When it comes into force, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Released:
    """Containers may run on all CPUs and none is placed, until a `PolicyChanged`."""

    reason: str
    """For people: what requested it, and when."""
    configuration: str = ""
    """The configuration in force, which does not end the release; empty: that of the node."""


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """CPUs went offline or came online, or the pods' cgroup allows other CPUs."""

    topology: Topology
    """The present machine. If it is unchanged, missing CPUs are removed from the grants, as after a restart."""
    pods_cgroup: str = ""
    """The cgroup above those of all pods; empty: that of the node."""


@dataclass(frozen=True, slots=True)
class Present:
    """A container that exists in the runtime, with its sets."""

    container: Container
    """Its key is the runtime's id; without a reservation, criproxy has not placed it."""
    has: Applied | None = None
    """The sets in force or, before its start, those that it will start with; None if unknown."""
    files: tuple[tuple[str, str], ...] = ()
    """The files of `controls.DEFAULTS` that criproxy has set, as its stamp says, and their values."""


@dataclass(frozen=True, slots=True)
class Found:
    """The runtime has pods and containers that criproxy did not place, or that the store has lost.

    If two containers conflict, the first one takes precedence.
    """

    pods: tuple[Pod, ...] = ()
    containers: tuple[Present, ...] = ()
    watch: bool = False
    """Whether containers that criproxy did not place stay unplaced; their CPUs are then `Node.watched_cpus`."""
    is_before_change: bool = False
    """Whether the configuration has changed, and its `PolicyChanged` follows, as at a start. Then a container that the
    store has lost is as the former one has placed it: nobody gets exclusive CPUs but who has them alone already."""


@dataclass(frozen=True, slots=True)
class Unclassified:
    """A criproxy without classes has placed containers, whose classes are looked up now; nobody moves."""

    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By pod: as `Pod.annotations`; such a criproxy has stored fewer."""
    kubelet_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By container that may have a class: as `Container.kubelet_files`."""


@dataclass(frozen=True, slots=True)
class PlacesMissed:
    """Containers run on CPUs of owners, because criproxy was not asked about a start."""

    keys: tuple[str, ...]
    since_s: float
    """Since when, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class CardReported:
    """A device plugin has reported the health of a card, or the containers that use a card have changed."""

    key: str
    """As `Incident.key`."""
    incident: Incident | None
    """None: forget the incident."""


WorkloadEvent = (
    PodCreated
    | PodResized
    | PodStopped
    | PodNotReady
    | PodGone
    | ContainerCreating
    | ContainerCreated
    | ContainerStarted
    | ColdStartEnded
    | ContainerExited
    | ContainerGone
    | UnknownOutcome
    | UpdateApplied
    | ContainerResized
)
"""Events about one pod or container."""

DesiredEvent = ResizeRefused | Promoted
"""Events about what one container should have but does not have."""

DeviceEvent = CardReported
"""Events about a card; they do not change grants."""

NodeEvent = PolicyChanged | Released | TopologyChanged | Found | Unclassified | PlacesMissed
"""Events about the whole node: the cost grows with the number of containers."""

Event = WorkloadEvent | DesiredEvent | DeviceEvent | NodeEvent


def can_be_refused(event: Event) -> bool:
    """Whether *event* can be refused, because a caller waits for the answer; all other events have already happened."""
    return is_reservation(event) or isinstance(event, ContainerResized | Promoted)


def is_reservation(event: Event) -> bool:
    """Whether *event* is a create that the runtime has not received."""
    return isinstance(event, ContainerCreating) and event.container.state is ContainerState.CREATING


def kind_of(event: Event) -> str:
    """``ContainerCreating`` → ``container_creating``."""
    return _snake_case(type(event).__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
