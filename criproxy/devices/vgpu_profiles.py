"""Parts of cards with a quota of memory and cores: profiles, as the policy file has them, and the vGPUs made of them.

A vGPU is a count with two limits that everybody knows: the kubelet counts its id, the container's annotations name the
limits, and what enforces them is chosen by the profile.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DOMAIN = "criproxy.io"
"""Of the resources as which profiles are offered."""
SEPARATOR = "/"
"""Between the id of a card, the name of a profile, and a number."""
PROFILE_ANNOTATION = "devices.criproxy.io/profile"
MEMORY_ANNOTATION = "devices.criproxy.io/memory-mib"
CORES_ANNOTATION = "devices.criproxy.io/cores-percent"
"""Of a container, beside the one with its id: the quota at the time of its Allocate, which the kubelet repeats."""

Enforcement = Literal["watch", "mps", "hami-core", "nvidia-memory-limit", "mig"]
"""What holds a container to its quota: criproxy's watcher afterwards, or one of the others while it runs."""
MIG: Enforcement = "mig"
"""The vGPUs are MIG devices that exist, and no parts that criproxy cuts: see `instances`."""
WhenMissing = Literal["next", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChoice:
    """Which cards of a class are cut: those that each of the given conditions lets through."""

    models: tuple[str, ...] = ()
    """Patterns with ``*`` and ``?``, of which one matches the product's name; empty: every model."""
    indexes: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    share_percent: int = 100
    """So many of the cards that are left, the first ones, rounded down."""
    mig: tuple[str, ...] = ()
    """Patterns of MIG profiles, of which one matches; empty: every MIG device of the cards. Of profiles with MIG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A quota that vGPUs have in common: of memory, of computing units, or of both."""

    name: str
    kind: str
    """The name of the class."""
    memory_mib: int = 0
    memory_percent: int = 0
    """Of the card's memory, where `memory_mib` is 0; 0: there is no quota of memory."""
    cores_percent: int = 0
    """Of the card's computing units; 0: there is no quota of them."""
    count: int | None = None
    """Of each card; None: as many as both quotas allow on what other profiles leave."""
    select: CardChoice = CardChoice()
    enforce: tuple[Enforcement, ...] = ("watch",)
    """All that are there, in this order."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the container: ``{memory_mib}``, ``{cores_percent}`` and ``{card}`` stand for its vGPU's."""
    when_missing: WhenMissing = "refuse"
    """What happens where one of them is not there: the others must do (next), or the container is refused."""

    @property
    def resource(self) -> str:
        """As which its vGPUs are offered."""
        return f"{DOMAIN}/{self.name}"

    @property
    def is_mig(self) -> bool:
        """Whether its vGPUs are MIG devices."""
        return MIG in self.enforce


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgpu:
    """A part of a card that one container can have."""

    id: str
    """``<id of the card>/<profile>/<number>``."""
    card: str
    profile: str
    memory_mib: int
    """0: there is no quota of memory."""
    cores_percent: int
    """0: there is no quota of computing units."""

    @property
    def file_name(self) -> str:
        """Its id, where a file is named after it."""
        return self.id.replace(SEPARATOR, "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSize:
    """What a card has to be cut."""

    id: str
    index: int
    model: str
    memory_mib: int
    """0 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one container may use of one card, as its annotations say it."""

    profile: str
    memory_mib: int
    cores_percent: int
    watched: bool = True
    """Whether the watcher acts on a container that exceeds it; False: something else enforces it."""


_ID = re.compile(r"([^/]+)/([a-z][a-z0-9.-]*)/(?:0|[1-9][0-9]{0,4})")
"""The name of a profile begins with a letter: NVIDIA's former ids of MIG devices are ``MIG-GPU-<uuid>/<gi>/<ci>``."""


def vgpu_id(card: str, profile: str, number: int) -> str:
    """The id of one vGPU."""
    return f"{card}{SEPARATOR}{profile}{SEPARATOR}{number}"


def card_of_vgpu(id: str) -> str:
    """The id of the card in the id of a vGPU; any other id as it is, such as the path of a node."""
    found = _ID.fullmatch(id) if SEPARATOR in id else None
    return found[1] if found else id


def is_vgpu(id: str) -> bool:
    """Whether *id* has the form of a vGPU's."""
    return SEPARATOR in id and _ID.fullmatch(id) is not None


def annotations_of(vgpu: Vgpu) -> dict[str, str]:
    """What a container's annotations say of the quota of its vGPU."""
    return {
        PROFILE_ANNOTATION: vgpu.profile,
        MEMORY_ANNOTATION: str(vgpu.memory_mib),
        CORES_ANNOTATION: str(vgpu.cores_percent),
    }


def quota_in(annotations: Mapping[str, str]) -> Quota | None:
    """The quota that *annotations* of a container say; None where they say none, or none that can be read."""
    memory, cores = annotations.get(MEMORY_ANNOTATION, ""), annotations.get(CORES_ANNOTATION, "")
    profile = annotations.get(PROFILE_ANNOTATION, "")
    if profile and memory.isascii() and memory.isdecimal() and cores.isascii() and cores.isdecimal():
        return Quota(profile=profile, memory_mib=int(memory), cores_percent=int(cores))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How the cards of a class are cut."""

    vgpus: Mapping[str, tuple[Vgpu, ...]] = field(default_factory=dict)
    """By profile."""
    whole: tuple[str, ...] = ()
    """The ids of cards that no profile chooses."""
    problems: tuple[str, ...] = ()
    """What the profiles and the cards contradict each other in: sentences with the arithmetic. A card in one of them
    has no vGPUs."""
    undecided: tuple[str, ...] = ()
    """Those of them that are none on a card with enough memory: how much it has is not known."""

    @property
    def cards(self) -> tuple[str, ...]:
        """The ids of the cards that are cut."""
        return tuple(dict.fromkeys(each.card for parts in self.vgpus.values() for each in parts))
