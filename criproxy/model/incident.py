"""Cards that a device plugin has reported as unhealthy, and the containers that used them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum


class Action(Enum):
    """What is done about the containers that use an unhealthy card."""

    NONE = "none"
    ANNOTATE = "annotate"
    """Their status says it in an annotation."""
    STOP = "stop"
    """They are stopped, and their status says why."""


class Use(Enum):
    """How far it is with a container that uses the card."""

    USES = "uses"
    """Nothing is done to it, or only its status says it."""
    STOPPING = "stopping"
    """The runtime is about to be told to stop it; its end counts as that stop."""
    STOPPED = "stopped"
    """The runtime has stopped it, or it had ended before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One time at which a card was unhealthy."""

    device_class: str
    card: str
    """Its id as the kubelet knows it, without the number of a replica."""
    since_s: float
    """In seconds since the epoch, as its device plugin says."""
    reason: str = ""
    action: Action = Action.NONE
    ended: bool = False
    """Whether the card is healthy again; then it is only kept for the sake of containers that were stopped."""
    containers: Mapping[str, Use] = field(default_factory=dict)
    """By `Container.life`, those that are still there."""

    @property
    def key(self) -> str:
        """What makes it another incident: a report that is repeated is about the same one."""
        return f"{self.device_class}/{self.card}/{self.since_s:.3f}"

    @property
    def sentence(self) -> str:
        """For people, as the kubelet shows it."""
        return f"{self.reason}; {self.card}"

    def with_uses(self, uses: Mapping[str, Use]) -> "Incident":
        """The same with more containers, or other ones."""
        return replace(self, containers={**self.containers, **uses})
