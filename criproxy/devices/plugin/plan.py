"""The configuration of the device plugin: the section ``devices.plugin``, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.classes.vgpu_profiles import Profile
from criproxy.devices.plugin.preference import Spread

Register = Literal["kubelet", "plugins-registry"]
OnUnhealthy = Literal["none", "annotate", "stop"]
OverQuota = Literal["observe", "annotate", "stop", "kill-process"]
STRENGTHS: tuple[OverQuota, ...] = ("observe", "annotate", "kill-process", "stop")
"""The actions against a container over its quota, the mildest first."""


def is_stronger(action: str, than: str) -> bool:
    """Whether an action against a container over its quota does more than another one."""
    words: list[str] = [*STRENGTHS]
    return words.index(action) > words.index(than)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """A class whose cards are offered to the kubelet."""

    kind: DeviceClass
    resource: str = ""
    """The resource that is offered, with its domain; empty for NVIDIA, whose own file sets it."""
    spread: Spread = "distributed"
    """How the replicas of one container are spread over cards."""

    @property
    def is_nvidia(self) -> bool:
        """Whether the class follows the rules of NVIDIA's device plugin."""
        return self.kind.name == NVIDIA.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCommand:
    """A program that reports which cards of a class work."""

    kind: str
    """The name of the class."""
    command: tuple[str, ...]
    period_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Labels:
    """The feature file of node-feature-discovery."""

    file: str
    interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSource:
    """The source of readings about the use of the cards of a class."""

    kind: str
    """The name of the class."""
    source: Literal["nvml", "command", "file"]
    command: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaActions:
    """The actions against a container over its quota, by quantity."""

    memory: OverQuota = "stop"
    cores: OverQuota = "observe"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlan:
    """Defines when a container is over its quota, and what happens then."""

    period_s: float = 1.0
    """The time between two readings."""
    grace_s: float = 5.0
    """How long a container may exceed its quota."""
    samples: int = 3
    """The number of consecutive readings that must show the container over its quota."""
    over_time_percent: int = 20
    """For how much of the time a container may exceed its quota, in pieces that are within the grace period."""
    margin_mib: int = 512
    """The memory that a container may use beyond its quota, because the driver needs some for each process."""
    cores_margin_percent: int = 10
    """The computing units that a container may use beyond its quota, in percent of the card."""
    stop_timeout_s: float = 10.0
    actions: QuotaActions = QuotaActions()
    by_class: Mapping[str, QuotaActions] = field(default_factory=dict)

    @property
    def tolerated_s(self) -> float:
        """How long a container may exceed its quota beyond that share: what it may exceed it in one piece."""
        return max(self.grace_s + self.period_s, self.samples * self.period_s)

    def action(self, kind: str, quantity: Literal["memory", "cores"]) -> OverQuota:
        """Return the action against a container with a card of the class *kind*."""
        actions = self.by_class.get(kind, self.actions)
        return actions.memory if quantity == "memory" else actions.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPlan:
    """The whole section."""

    advertised: tuple[Advertised, ...]
    sharing: tuple[SharedCards, ...] = ()
    nvidia_config: str = ""
    """A file or a directory of named files; empty: only NVIDIA's defaults, flags and variables."""
    register: Register = "kubelet"
    hold_down_s: float = 30.0
    on_unhealthy: OnUnhealthy = "none"
    health_commands: tuple[HealthCommand, ...] = ()
    labels: Labels | None = None
    profiles: tuple[Profile, ...] = ()
    usage: tuple[UsageSource, ...] = ()
    quota: QuotaPlan = QuotaPlan()

    @property
    def nvidia(self) -> Advertised | None:
        """NVIDIA's class, if it is advertised."""
        return next((each for each in self.advertised if each.is_nvidia), None)

    @property
    def watched(self) -> tuple[str, ...]:
        """The classes whose profiles are to be watched."""
        return tuple(dict.fromkeys(each.kind for each in self.profiles if "watch" in each.enforce))

    @property
    def unwatched(self) -> tuple[str, ...]:
        """Those of them that have no source of usage data."""
        sources = {each.kind for each in self.usage}
        return tuple(kind for kind in self.watched if kind not in sources)

    def profiles_of(self, advertised: Advertised) -> tuple[Profile, ...]:
        """Return the profiles that divide the cards of a class."""
        return tuple(each for each in self.profiles if each.kind == advertised.kind.name)

    def shared_of(self, advertised: Advertised) -> tuple[SharedCards, ...]:
        """Return the entries that share the cards of a class."""
        if not advertised.is_nvidia:
            return tuple(each for each in self.sharing if each.name == advertised.resource)
        others = {each.resource for each in self.advertised if not each.is_nvidia}
        return tuple(each for each in self.sharing if each.name not in others)


NVIDIA_ALONE = PluginPlan(advertised=(Advertised(kind=NVIDIA),))
"""The plan without a policy file, which replaces NVIDIA's device plugin."""
