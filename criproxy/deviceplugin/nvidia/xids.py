"""XID errors: which ones make NVIDIA's cards unhealthy, and which cards an error affects.

NVIDIA's plugin knows only one ID of each GPU, so that an error affects one arbitrary replica or one MIG device. Here it
affects the card with all its replicas, and all MIG devices.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.deviceplugin.nvidia.gpus import Gpu, Platform

ALWAYS_IGNORED = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of programs, after which the card works as before."""
SINGLE_BIT_ECC, DOUBLE_BIT_ECC, XID_CRITICAL = 1, 2, 8
EVENT_MASK = SINGLE_BIT_ECC | DOUBLE_BIT_ECC | XID_CRITICAL
"""The kinds of events that NVIDIA's plugin registers for; only XID events have consequences."""
WAIT_MS = 5000
"""Timeout for the next event."""
WHOLE_GPU = 0xFFFFFFFF
"""Number of an instance in an event about no instance in particular."""
_DISABLE, _ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
_ALL_WORDS = frozenset({"all", "xids"})
_ALL = 0
"""Key for all XIDs; the word ``all`` and the number 0 stand for it."""
_MAX_XID = 2**64 - 1
_NUMBER = re.compile("[0-9]{1,100}")


@dataclass(frozen=True, slots=True)
class XidFilter:
    """Selects the XIDs that count."""

    ignored: Mapping[int, bool] = field(default_factory=lambda: dict.fromkeys(ALWAYS_IGNORED, True))
    """Whether an XID, or 0 for all, is ignored; an XID without an entry is not, unless all are."""

    @property
    def watching(self) -> bool:
        """Whether events are watched at all: not if all XIDs are ignored, even if some are enabled again."""
        return not self.ignored.get(_ALL, False)

    def handles(self, xid: int) -> bool:
        """Whether an XID makes a card unhealthy, if events are watched."""
        return self.ignored.get(_ALL) is False or not self.ignored.get(xid, self.ignored.get(_ALL, False))


def xid_filter(env: Mapping[str, str]) -> XidFilter:
    """Return the filter of the variables ``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS`` of *env*.

    Both are comma-separated lists; the words ``all`` and ``xids`` and the number 0 mean all XIDs. Enabled XIDs take
    precedence over disabled ones and those that are always ignored.
    """
    disabled = {*_xids(env.get(_DISABLE, "")), *ALWAYS_IGNORED}
    enabled = _xids(env.get(_ENABLE, ""))
    return XidFilter(dict.fromkeys(disabled, True) | dict.fromkeys(enabled, False))


def _xids(text: str) -> list[int]:
    """Return the XIDs in a list; anything that is not a number is skipped."""
    words = [word.strip() for word in text.lower().split(",")]
    if not _ALL_WORDS.isdisjoint(words):
        return [_ALL]
    numbers = (int(word) for word in words if _NUMBER.fullmatch(word))
    return [number for number in numbers if number <= _MAX_XID]


@dataclass(frozen=True, slots=True)
class Place:
    """The GPU, and the part of it, that a card is."""

    gpu: str
    """The GPU's UUID."""
    gi: int = WHOLE_GPU
    ci: int = WHOLE_GPU

    @property
    def is_mig(self) -> bool:
        """Whether the card is a MIG device."""
        return self.gi != WHOLE_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that NVML reports about one GPU."""

    gpu: str | None
    """Its UUID; None if NVML cannot determine it: the event may be about any GPU."""
    xid: int = 0
    gi: int = WHOLE_GPU
    ci: int = WHOLE_GPU
    is_xid: bool = True
    """Otherwise something else, such as a corrected memory error."""

    def concerns(self, place: Place) -> bool:
        """Whether the event is about the card at *place*: its GPU, and no other instance of that GPU."""
        if self.gpu != place.gpu:
            return False
        of_the_whole = not place.is_mig or WHOLE_GPU in (self.gi, self.ci)
        return of_the_whole or (self.gi, self.ci) == (place.gi, place.ci)


Places = Mapping[str, Place]
"""By the ID of a card; cards without an entry cannot be watched."""


def is_watched(platform: Platform) -> bool:
    """Whether cards of the platform have events: not under WSL, and not on a Tegra chip."""
    return platform == "nvml"


def places_of(gpus: Iterable[Gpu]) -> dict[str, Place]:
    """Return the place of each card."""
    found = {}
    for gpu in gpus:
        found[gpu.uuid] = Place(gpu.uuid)
        found |= {device.uuid: Place(gpu.uuid, device.gi, device.ci) for device in gpu.mig}
    return found


def made_unhealthy(event: Event, cards: Iterable[str], places: Places, xids: XidFilter) -> list[str]:
    """Return those of *cards*, whole ones and MIG devices, that *event* makes unhealthy."""
    if not xids.watching or not event.is_xid or not xids.handles(event.xid):
        return []
    return [card for card in cards if event.gpu is None or (card in places and event.concerns(places[card]))]
