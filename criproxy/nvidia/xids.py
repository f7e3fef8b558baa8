"""XID errors: which make NVIDIA's cards Unhealthy, and which ids of a resource one of them is about.

NVIDIA's plugin knows one id of each GPU, so that an error is about one replica, by chance, or about one MIG device.
Here it is about all that it concerns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from criproxy.devices.offers import Offered
from criproxy.nvidia.gpus import Gpu
from criproxy.nvidia.nodes import Platform

ALWAYS_IGNORED = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of programs, after which the card is as good as before."""
SINGLE_BIT_ECC, DOUBLE_BIT_ECC, XID_CRITICAL = 1, 2, 8
EVENT_MASK = SINGLE_BIT_ECC | DOUBLE_BIT_ECC | XID_CRITICAL
"""The kinds of events that NVIDIA's plugin registers for; only those about XIDs have consequences."""
WAIT_MS = 5000
"""How long it waits for the next event."""
WHOLE_GPU = 0xFFFFFFFF
"""As the number of an instance: the event is about none in particular."""
_DISABLE, _ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
_ALL_WORDS = frozenset({"all", "xids"})
_ALL = 0
"""Stands for all XIDs, as a word or as this number."""
_MAX_XID = 2**64 - 1
_NUMBER = re.compile("[0-9]{1,100}")
_OLD_MIG_UUID = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})")
"""That of drivers before R470, which names the GPU and both instances."""

EventKind = Literal["xid", "other", "failed"]
"""An XID; something else, such as a corrected error of memory; the wait for events failed for all GPUs."""


@dataclass(frozen=True, slots=True)
class XidFilter:
    """Which XIDs count."""

    ignored: Mapping[int, bool] = field(default_factory=lambda: dict.fromkeys(ALWAYS_IGNORED, True))
    """By XID, or by 0 for all: whether it is ignored; one that is not named is not, unless all are."""

    @property
    def watching(self) -> bool:
        """Whether events are waited for at all: not if all are ignored, even where some are enabled again."""
        return not self.ignored.get(_ALL, False)

    def handles(self, xid: int) -> bool:
        """Whether the XID makes a card Unhealthy, if events are waited for."""
        everything = self.ignored.get(_ALL)
        if everything is False:
            return True
        return not self.ignored.get(xid, bool(everything))


def xid_filter(env: Mapping[str, str]) -> XidFilter:
    """What the variables ``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS`` of *env* make of the XIDs.

    Both are lists with commas; the words ``all`` and ``xids`` and the number 0 mean all XIDs. What is enabled counts
    more than what is disabled and what is always ignored.
    """
    disabled = {*_xids(env.get(_DISABLE, "")), *ALWAYS_IGNORED}
    enabled = _xids(env.get(_ENABLE, ""))
    return XidFilter(dict.fromkeys(disabled, True) | dict.fromkeys(enabled, False))


def _xids(text: str) -> list[int]:
    """The XIDs in a list; what is no number is left out."""
    words = [word.strip() for word in text.lower().split(",")]
    if not _ALL_WORDS.isdisjoint(words):
        return [_ALL]
    numbers = (int(word) for word in words if _NUMBER.fullmatch(word))
    return [number for number in numbers if number <= _MAX_XID]


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of which GPU a card is."""

    gpu: str
    """The GPU's UUID."""
    gi: int = WHOLE_GPU
    ci: int = WHOLE_GPU

    @property
    def is_mig(self) -> bool:
        """Whether it is a MIG device."""
        return self.gi != WHOLE_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What NVML tells about one GPU."""

    gpu: str | None
    """Its UUID; None where NVML cannot say it: it may be any."""
    xid: int = 0
    gi: int = WHOLE_GPU
    ci: int = WHOLE_GPU
    kind: EventKind = "xid"

    def concerns(self, place: Place) -> bool:
        """Whether it is about the card at *place*: about its GPU, and about no other instance of that."""
        if self.gpu != place.gpu:
            return False
        of_the_whole = not place.is_mig or WHOLE_GPU in (self.gi, self.ci)
        return of_the_whole or (self.gi, self.ci) == (place.gi, place.ci)


Places = Mapping[str, Place]
"""By the id of a card; those that are missing cannot be watched."""


def is_watched(platform: Platform) -> bool:
    """Whether cards that are found so have events: not below Windows, and not on a Tegra chip."""
    return platform == "nvml"


def places_of(gpus: Iterable[Gpu]) -> dict[str, Place]:
    """Where each card is."""
    found = {}
    for gpu in gpus:
        found[gpu.uuid] = Place(gpu.uuid)
        found |= {device.uuid: Place(gpu.uuid, device.gi, device.ci) for device in gpu.mig}
    return found


def place_in(uuid: str) -> Place | None:
    """What the UUID of a MIG device itself says, for drivers that cannot be asked; None: nothing."""
    found = _OLD_MIG_UUID.fullmatch(uuid)
    return Place(found[1], int(found[2]), int(found[3])) if found else None


def made_unhealthy(event: Event, offered: Iterable[Offered], places: Places, xids: XidFilter) -> list[str]:
    """The ids, replicas and MIG devices among them, that *event* makes Unhealthy, in the order of *offered*."""
    if not xids.watching or event.kind == "other" or (event.kind == "xid" and not xids.handles(event.xid)):
        return []
    if event.gpu is None:
        return [each.id for each in offered]
    return [each.id for each in offered if (place := places.get(each.card)) is not None and event.concerns(place)]


def unwatched(offered: Iterable[Offered], places: Places, failed: Iterable[str]) -> list[str]:
    """The ids that are Unhealthy from the start, since it is not known where they are or their GPU is not watched.

    Args:
        offered: those of a resource.
        places: of the cards, as far as they are known.
        failed: UUIDs of GPUs for which NVML gave no events, for another reason than that they have none.
    """
    without = set(failed)
    return [each.id for each in offered if (place := places.get(each.card)) is None or place.gpu in without]
