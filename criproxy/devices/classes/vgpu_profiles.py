"""The profiles of the policy file, and vGPUs: parts of cards with a quota of memory, of cores, or of both.

The kubelet allocates the id of a vGPU, the container's annotations contain its quotas, and the profile selects what
enforces them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DOMAIN = "criproxy.io"
"""The domain of the profiles' resources."""
SEPARATOR = "/"
"""The separator in the id of a vGPU: between the id of the card, the name of the profile, and a number."""
PROFILE_ANNOTATION = "devices.criproxy.io/profile"
MEMORY_ANNOTATION = "devices.criproxy.io/memory-mib"
CORES_ANNOTATION = "devices.criproxy.io/cores-percent"
"""The annotations of a container with the quota at the time of Allocate; the kubelet repeats them."""

Enforcement = Literal["watch", "mps", "hami-core", "nvidia-memory-limit", "mig"]
"""What enforces a quota: criproxy's watcher afterwards, or one of the others while the container runs."""
MIG: Enforcement = "mig"
"""The vGPUs are existing MIG devices, not parts that criproxy defines: see `instances`."""
WhenMissing = Literal["next", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChoice:
    """The cards of a class that a profile divides: those that meet all conditions."""

    models: tuple[str, ...] = ()
    """Patterns with ``*`` and ``?``, one of which must match the name of the product; empty: every model."""
    indexes: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    share_percent: int = 100
    """The share of the remaining cards, the first ones, rounded down."""
    mig: tuple[str, ...] = ()
    """Only with MIG: patterns of MIG profiles, one of which must match; empty: every MIG device of the cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The quotas of vGPUs: of memory, of computing units, or of both."""

    name: str
    kind: str
    """The name of the class."""
    memory_mib: int = 0
    memory_percent: int = 0
    """In percent of the card's memory, if `memory_mib` is 0; 0: there is no memory quota."""
    cores_percent: int = 0
    """In percent of the card's computing units; 0: there is no such quota."""
    count: int | None = None
    """The number of vGPUs of each card; None: as many as fit beside those of other profiles."""
    select: CardChoice = CardChoice()
    enforce: tuple[Enforcement, ...] = ("watch",)
    """The enforcements; those that the node has are used, in this order."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the container, with the placeholders ``{memory_mib}``, ``{cores_percent}`` and ``{card}``."""
    when_missing: WhenMissing = "refuse"
    """What happens if the node lacks an enforcement: the others are used (next), or the container is refused."""

    @property
    def resource(self) -> str:
        """The resource of its vGPUs."""
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
    """0: there is no memory quota."""
    cores_percent: int
    """0: there is no quota of computing units."""

    @property
    def file_name(self) -> str:
        """The id, as the name of a file."""
        return self.id.replace(SEPARATOR, "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSize:
    """The properties of a card that determine how it is divided."""

    id: str
    index: int
    model: str
    memory_mib: int
    """0 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The quota of one container on one card, according to its annotations."""

    profile: str
    memory_mib: int
    cores_percent: int
    watched: bool = True
    """Whether the watcher acts on a container that exceeds it; False: something else enforces it."""
    enforced_by: str = field(default="", compare=False)
    """For people: the methods in effect, separated by commas."""
    not_enforced: str = field(default="", compare=False)
    """For people: why other methods of its profile are not in effect."""


_ID = re.compile(r"([^/]+)/([a-z][a-z0-9.-]*)/(?:0|[1-9][0-9]{0,4})")
"""The name of a profile begins with a letter: NVIDIA's former ids of MIG devices are ``MIG-GPU-<uuid>/<gi>/<ci>``."""


def vgpu_id(card: str, profile: str, number: int) -> str:
    """Return the id of a vGPU."""
    return f"{card}{SEPARATOR}{profile}{SEPARATOR}{number}"


def card_of_vgpu(id: str) -> str:
    """Return the id of a vGPU's card; any other id unchanged, such as the path of a device node."""
    found = _ID.fullmatch(id) if SEPARATOR in id else None
    return found[1] if found else id


def is_vgpu(id: str) -> bool:
    """Whether *id* has the format of a vGPU's id."""
    return SEPARATOR in id and _ID.fullmatch(id) is not None


def annotations_of(vgpu: Vgpu) -> dict[str, str]:
    """Return the annotations of a container with the quota of its vGPU."""
    return {
        PROFILE_ANNOTATION: vgpu.profile,
        MEMORY_ANNOTATION: str(vgpu.memory_mib),
        CORES_ANNOTATION: str(vgpu.cores_percent),
    }


def quota_in(annotations: Mapping[str, str]) -> Quota | None:
    """Return the quota in a container's *annotations*; None if there is none, or it is invalid."""
    memory, cores = annotations.get(MEMORY_ANNOTATION, ""), annotations.get(CORES_ANNOTATION, "")
    profile = annotations.get(PROFILE_ANNOTATION, "")
    if profile and memory.isascii() and memory.isdecimal() and cores.isascii() and cores.isdecimal():
        return Quota(profile=profile, memory_mib=int(memory), cores_percent=int(cores))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The division of the cards of a class."""

    vgpus: Mapping[str, tuple[Vgpu, ...]] = field(default_factory=dict)
    """The vGPUs, by profile."""
    whole: tuple[str, ...] = ()
    """The ids of the cards that no profile selects."""
    problems: tuple[str, ...] = ()
    """The contradictions between profiles and cards, as sentences with the calculation. A card in one of them has no
    vGPUs."""
    undecided: tuple[str, ...] = ()
    """The problems that exist only because the memory of a card is unknown."""
