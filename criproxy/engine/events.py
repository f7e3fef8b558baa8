"""What can happen to a node, as values in the past tense (or, for a held create, about to happen)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Applied
from criproxy.model.incident import Incident
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, ContainerState, Pod, Sizes


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The runtime made a sandbox."""

    pod: Pod
    inherits: Mapping[str, CpuSet] = field(default_factory=dict)
    """By name of the container, what this pod had alone when its sandbox before was stopped, if that was just now:
    what is still free of it is kept for it again."""


@dataclass(frozen=True, slots=True)
class PodResized:
    """The kubelet says another CPU total for the pod; what its containers have follows with their own messages."""

    key: str
    cpu_total_milli: int
    """As `Pod.cpu_total_milli`."""


@dataclass(frozen=True, slots=True)
class PodStopped:
    """The sandbox was stopped, and with it every container in it."""

    key: str


@dataclass(frozen=True, slots=True)
class PodNotReady:
    """The sandbox has ended by itself, or the runtime does not have it: no container starts in it any more.

    Those that are in it may go on.
    """

    key: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """The sandbox was removed, and with it every container in it."""

    key: str


@dataclass(frozen=True, slots=True)
class ContainerCreating:
    """A create is held: reserve a place. The container's key is a fresh reservation id."""

    container: Container


@dataclass(frozen=True, slots=True)
class ContainerCreated:
    """The runtime made the container that held the reservation."""

    reservation: str
    key: str
    """The runtime's id."""


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """The container runs."""

    key: str


@dataclass(frozen=True, slots=True)
class ColdStartEnded:
    """The container has run for as long as its annotation ``cold-start`` says: it is placed anew, as a warm one."""

    key: str


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """The container stopped, exited or failed to start: its place is free, the runtime still knows it."""

    key: str


@dataclass(frozen=True, slots=True)
class ContainerGone:
    """The container was removed or its create failed: nothing of it is left."""

    key: str


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """A create or start about the container ended without an answer; nothing is given back."""

    key: str


@dataclass(frozen=True, slots=True)
class UpdateApplied:
    """The container was seen to have these sets (read from its cgroup; or, not started yet, in the runtime's reply)."""

    key: str
    cpus: CpuSet
    mems: CpuSet
    lifted: bool = False
    """As `Applied.lifted`."""


@dataclass(frozen=True, slots=True)
class ContainerResized:
    """The kubelet wants another size for the container, which may be running: it is placed anew, in place if it can."""

    key: str
    sizes: Sizes
    """All of them, those that stay as they are included."""


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """There is no room for a size that the kubelet wants for the container: it goes on as it is."""

    key: str
    sizes: Sizes
    """All of them."""
    at_s: float = 0.0
    """In seconds since the epoch."""
    believed: bool = False
    """Whether the kubelet believes that it has this size, and does not ask again."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """There may be room for what the container should have: exclusive CPUs, or the size that had none before.

    It is placed as the policy says if there is, else nothing changes.
    """

    key: str


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The policy that is passed with this event is another than before, or has other options; ends a release."""

    apply_all: bool = False
    """Whether all containers are placed anew; otherwise only new ones are, and unplaced containers share CPUs."""
    configuration: str = ""
    """For `Node.configuration`."""
    keeps_release: bool = False
    """Whether a released node stays so: the configuration is that of before, which was away or lost for a while."""


@dataclass(frozen=True, slots=True)
class Released:
    """Containers may run everywhere and none is placed, until a `PolicyChanged`."""

    reason: str
    """For people: who wanted it, and when."""
    configuration: str = ""
    """The one in force, which does not end the release; empty: the node's."""


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """CPUs went offline or came online, or the pods' cgroup allows others."""

    topology: Topology
    """The machine as it is now. The same as before takes out of the grants what is no more: after a restart."""


@dataclass(frozen=True, slots=True)
class Present:
    """A container that the runtime has, and where it is."""

    container: Container
    """Its key is the runtime's id; without a reservation it is not ours."""
    has: Applied | None = None
    """The sets in force or, before its start, those that it will start with; None where they are not known."""


@dataclass(frozen=True, slots=True)
class Found:
    """The runtime has pods and containers that we did not place, or that the store has lost.

    Those who come first choose first where two are in conflict.
    """

    pods: tuple[Pod, ...] = ()
    containers: tuple[Present, ...] = ()
    watch: bool = False
    """Whether containers that are not ours stay unplaced; their CPUs are `Node.watched_cpus` then."""


@dataclass(frozen=True, slots=True)
class CardReported:
    """A device plugin has said how a card is, or it is another matter now which containers use it."""

    key: str
    """As `Incident.key`."""
    incident: Incident | None
    """None: nothing is to be remembered of it."""


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
"""About one pod or container: what happened to it, or is about to."""

DesiredEvent = ResizeRefused | Promoted
"""About what one container should have and has not."""

DeviceEvent = CardReported
"""About a card; no container gets another place by it."""

NodeEvent = PolicyChanged | Released | TopologyChanged | Found
"""About the whole node: the cost grows with the number of containers."""

Event = WorkloadEvent | DesiredEvent | DeviceEvent | NodeEvent


def can_be_refused(event: Event) -> bool:
    """Whether it need not be: somebody waits for the answer; everything else tells what has happened."""
    return is_reservation(event) or isinstance(event, ContainerResized | Promoted)


def is_reservation(event: Event) -> bool:
    """Whether it is a create that the runtime has not heard of."""
    return isinstance(event, ContainerCreating) and event.container.state is ContainerState.CREATING


def kind_of(event: Event) -> str:
    """``ContainerCreating`` → ``container_creating``."""
    return _snake_case(type(event).__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
