"""Incidents that the device plugin reports: unhealthy cards and their containers, and containers over their quota."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

END_OF_TIME_S = 253_402_300_800.0
"""The year 10000, in seconds since the epoch: no calendar of Python's can write later times."""
KILL_S = 10.0
"""A container that ends within this time after the kill of one of its processes has ended because of that."""


class Action(Enum):
    """The action for the containers that use an unhealthy card."""

    NONE = "none"
    ANNOTATE = "annotate"
    """Their status has an annotation."""
    STOP = "stop"
    """They are stopped, and their status has the reason."""


class Use(Enum):
    """The progress of the action for a container that uses the card."""

    USES = "uses"
    """There is no action, or only an annotation in its status."""
    STOPPING = "stopping"
    """criproxy is about to stop it; if it ends, it counts as stopped."""
    STOPPED = "stopped"
    """The runtime has stopped it, or it had ended before."""
    KILLED = "killed"
    """The watcher was requested to kill one of its processes; if it ends soon, that is the cause."""


class Quantity(Enum):
    """The quantities that have quotas."""

    MEMORY = "memory"
    CORES = "cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """The use of one container beyond its quota."""

    life: str
    """The container, by `Container.life`."""
    quantity: Quantity
    used: int
    """In MiB, or in percent of the card's computing units."""
    allowed: int
    kills: bool = False
    """Whether the watcher kills a process; other actions are in the incident."""
    stop_timeout_s: float = 10.0
    """The grace period when it is stopped."""
    acted_s: float = 0.0
    """When the watcher was requested to kill, in seconds since the epoch."""
    pid: int = 0
    start_ticks: int = 0
    """With `pid`, the process to kill, so that a restarted watcher can continue; 0 if there is none."""

    @property
    def reason(self) -> str:
        """The reason of the container's end in its status."""
        return "GPUMemoryQuotaExceeded" if self.quantity is Quantity.MEMORY else "GPUCoresQuotaExceeded"

    def sentence(self, card: str) -> str:
        """For people, as the kubelet shows it."""
        unit = "MiB" if self.quantity is Quantity.MEMORY else "% of the cores"
        return f"{self.used} {unit} used, {self.allowed} {unit} allowed on {card}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A period in which a card was unhealthy, or a container was over the quota of its vGPU."""

    device_class: str
    card: str
    """The id of the card as the kubelet knows it, without the number of a replica."""
    since_s: float
    """The beginning according to the device plugin, in seconds since the epoch."""
    reason: str = ""
    action: Action = Action.NONE
    ended: bool = False
    """Whether the card is healthy again, or the container within its quota; then it is only kept for the statuses of
    stopped containers."""
    containers: Mapping[str, Use] = field(default_factory=dict)
    """The containers that still exist, by `Container.life`."""
    excess: Excess | None = None
    """None if the card is unhealthy; otherwise the card works, and one container exceeds its quota."""

    @property
    def key(self) -> str:
        """The identity of the incident: repeated reports have the same key."""
        about = f"{self.device_class}/{self.card}/{self.since_s:.3f}"
        return f"{about}/{self.excess.quantity.value}/{self.excess.life}" if self.excess else about

    @property
    def sentence(self) -> str:
        """For people, as the kubelet shows it."""
        return self.excess.sentence(self.card) if self.excess else f"{self.reason}; {self.card}"

    @property
    def action_word(self) -> str:
        """The action as the policy file names it: in ``onUnhealthy``, or in ``quota.actions``."""
        if self.excess is None or self.action is not Action.NONE:
            return self.action.value
        return "kill-process" if self.excess.kills else "observe"

    @property
    def is_shown(self) -> bool:
        """Whether it may appear in the statuses of its containers."""
        return self.action is not Action.NONE or (self.excess is not None and self.excess.kills)

    def is_of_quota(self, life: str, device_class: str, card: str, quantity: Quantity) -> bool:
        """Whether it is about that quota of the container instance *life*."""
        same = self.excess is not None and (self.excess.life, self.excess.quantity) == (life, quantity)
        return same and (self.device_class, self.card) == (device_class, card)

    def with_uses(self, uses: Mapping[str, Use]) -> "Incident":
        """Return a copy with additional or changed containers."""
        return replace(self, containers={**self.containers, **uses})
