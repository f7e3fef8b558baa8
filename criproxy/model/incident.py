"""What a device plugin has reported: unhealthy cards and the containers that use them, containers over their quota."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

KILL_S = 10.0
"""A container that ends so soon after one of its processes was to be killed has ended because of that."""


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
    KILLED = "killed"
    """The watcher was told to kill a process of it; an end soon after counts as that."""


class Quantity(Enum):
    """Of what there is a quota."""

    MEMORY = "memory"
    CORES = "cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How much one container uses beyond its quota."""

    life: str
    """The container, by `Container.life`."""
    quantity: Quantity
    used: int
    """In MiB, or in percent of the card's computing units."""
    allowed: int
    kills: bool = False
    """Whether the watcher kills a process; what else is done is the incident's action."""
    stop_timeout_s: float = 10.0
    """How long it has to end by itself, where it is stopped."""
    acted_s: float = 0.0
    """When the watcher was told to kill, in seconds since the epoch."""
    pid: int = 0
    start_ticks: int = 0
    """The process to kill, which a watcher that is restarted brings to its end; 0: none was named."""

    @property
    def reason(self) -> str:
        """Why a container was ended, as its status says it."""
        return "GPUMemoryQuotaExceeded" if self.quantity is Quantity.MEMORY else "GPUCoresQuotaExceeded"

    def sentence(self, card: str) -> str:
        """For people, as the kubelet shows it."""
        unit = "MiB" if self.quantity is Quantity.MEMORY else "% of the cores"
        return f"{self.used} {unit} used, {self.allowed} {unit} allowed on {card}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One time at which a card was unhealthy, or at which a container was over the quota of its vGPU."""

    device_class: str
    card: str
    """Its id as the kubelet knows it, without the number of a replica."""
    since_s: float
    """In seconds since the epoch, as its device plugin says."""
    reason: str = ""
    action: Action = Action.NONE
    ended: bool = False
    """Whether the card is healthy again, or the container within its quota; then it is only kept for the sake of
    containers that were stopped."""
    containers: Mapping[str, Use] = field(default_factory=dict)
    """By `Container.life`, those that are still there."""
    excess: Excess | None = None
    """None: the card is unhealthy. Else the card works, and one container uses too much of it."""

    @property
    def key(self) -> str:
        """What makes it another incident: a report that is repeated is about the same one."""
        about = f"{self.device_class}/{self.card}/{self.since_s:.3f}"
        return f"{about}/{self.excess.quantity.value}/{self.excess.life}" if self.excess else about

    @property
    def sentence(self) -> str:
        """For people, as the kubelet shows it."""
        return self.excess.sentence(self.card) if self.excess else f"{self.reason}; {self.card}"

    @property
    def action_word(self) -> str:
        """The action in the words of the policy file: those of ``onUnhealthy``, or of ``quota.actions``."""
        if self.excess is None or self.action is not Action.NONE:
            return self.action.value
        return "kill-process" if self.excess.kills else "observe"

    @property
    def is_shown(self) -> bool:
        """Whether statuses of its containers may say it."""
        return self.action is not Action.NONE or (self.excess is not None and self.excess.kills)

    def is_of_quota(self, life: str, device_class: str, card: str, quantity: Quantity) -> bool:
        """Whether it is about that quota of that container."""
        same = self.excess is not None and (self.excess.life, self.excess.quantity) == (life, quantity)
        return same and (self.device_class, self.card) == (device_class, card)

    def with_uses(self, uses: Mapping[str, Use]) -> "Incident":
        """The same with more containers, or other ones."""
        return replace(self, containers={**self.containers, **uses})
