"""The health of one card: Unhealthy as soon as there is a cause, and Healthy after a while without any.

A cause either lasts until its end is reported (a device node that vanished, a call that fails, a health command), or
happens at one moment (an XID error). There can be several causes at once. A card recovers when the last one has ended
and no other has come during the hold-down, so that a card that fails again and again does not flap. If its driver can
be queried, an answer after the hold-down is required, too.
"""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Final, Literal

HOLD_DOWN_S: Final = 30.0
"""The time without any cause after which a card is Healthy again."""
MAX_CAUSES: Final = 16
"""The number of ended causes that are kept until the card recovers; the oldest are dropped first."""
MAX_OUTPUT: Final = 200
"""The maximum length of a command's output, in characters."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was observed on a card."""

    key: str
    """Identifies the cause; its end has the same key as its beginning."""
    kind: Literal["began", "ended", "happened"]
    reason: str = ""
    """For messages, such as ``XID 79``."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a card is Unhealthy."""

    key: str
    reason: str
    over_s: float | None = None
    """When it last ended; None: it lasts."""

    @property
    def lasts(self) -> bool:
        """Whether the cause has not ended."""
        return self.over_s is None


@dataclass(frozen=True, slots=True)
class CardHealth:
    """The state of a card at one moment; `step` returns the next one."""

    at_s: float
    """The time of the last step, in seconds of any clock that does not go back."""
    causes: tuple[Cause, ...] = ()
    """In the order in which they began; none: the card is Healthy."""
    hold_down_s: float = HOLD_DOWN_S
    queried_s: float | None = None
    """When the driver was last asked about the card and answered; None: it cannot be asked."""

    @property
    def healthy(self) -> bool:
        """Whether the kubelet may allocate the card."""
        return not self.causes

    @property
    def reason(self) -> str:
        """Why the card is Unhealthy: the lasting causes, or else those it recovers from; empty if it is Healthy."""
        lasting = [cause.reason for cause in self.causes if cause.lasts]
        return "; ".join(dict.fromkeys(lasting or [cause.reason for cause in self.causes]))

    @property
    def recovers_at_s(self) -> float | None:
        """When the hold-down is over if nothing else happens; None: the card is Healthy, or a cause lasts."""
        over = [cause.over_s for cause in self.causes if cause.over_s is not None]
        return max(over) + self.hold_down_s if over and len(over) == len(self.causes) else None


def new(at_s: float, *, hold_down_s: float = HOLD_DOWN_S) -> CardHealth:
    """Return the state of a card that was found at *at_s*, which is Healthy at first."""
    return CardHealth(at_s, hold_down_s=hold_down_s)


def step(health: CardHealth, at_s: float, *changes: Change) -> CardHealth:
    """Return the state at *at_s*, after all *changes* of that moment; a time before that of *health* counts as that.

    Changes that were observed at different times need a step each.
    """
    now_s = max(health.at_s, at_s) if isfinite(at_s) else health.at_s
    causes = () if _is_recovered(health, now_s) else health.causes
    for change in changes:
        causes = _changed(causes, change, now_s)
    return replace(health, at_s=now_s, causes=_bounded(causes))


def began(key: str, reason: str) -> Change:
    """Return the beginning of a cause that lasts until `ended`."""
    return Change(key, "began", reason)


def ended(key: str) -> Change:
    """Return the end of the cause with the same key; without one, it has no effect."""
    return Change(key, "ended")


def happened(key: str, reason: str) -> Change:
    """Return a cause that does not last."""
    return Change(key, "happened", reason)


def xid_event(xid: int) -> Change:
    """Return the change for an XID error that the driver reported."""
    return happened(f"xid {xid}", f"XID {xid}")


def node_vanished(path: str) -> Change:
    """Return the change for a device node that has vanished."""
    return began(f"node {path}", f"{path} is missing")


def node_back(path: str) -> Change:
    """Return the change for a device node that exists again."""
    return ended(f"node {path}")


def call_failed(call: str, error: str) -> Change:
    """Return the change for a call of the driver's library that failed for the card."""
    return began(f"call {call}", f"{call}: {error}")


def call_works(call: str) -> Change:
    """Return the change for a call of the driver's library that works."""
    return ended(f"call {call}")


def command_unhealthy(output: str) -> Change:
    """Return the change for a card that the health command reports as unhealthy, with the reason in *output*."""
    text = " ".join(output.split())[:MAX_OUTPUT]
    return began(
        "command", f"the health command reports: {text}" if text else "the health command reports it as unhealthy"
    )


def command_healthy() -> Change:
    """Return the change for a card that the health command does not report."""
    return ended("command")


def _is_recovered(health: CardHealth, now_s: float) -> bool:
    recovers_at_s = health.recovers_at_s
    if recovers_at_s is None or now_s < recovers_at_s:
        return False
    return health.queried_s is None or health.queried_s >= recovers_at_s


def _changed(causes: tuple[Cause, ...], change: Change, now_s: float) -> tuple[Cause, ...]:
    """Return the causes after one change; each keeps its position, and one that had ended may last again."""
    found = {cause.key: cause for cause in causes}
    old = found.get(change.key)
    if change.kind == "began":
        found[change.key] = Cause(change.key, change.reason)
    elif change.kind == "happened" and (old is None or not old.lasts):
        found[change.key] = Cause(change.key, change.reason, now_s)
    elif change.kind == "ended" and old is not None and old.lasts:
        found[change.key] = replace(old, over_s=now_s)
    return tuple(found.values())


def _bounded(causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return the lasting causes and the newest others: a card can report any number of different errors."""
    over = sorted((cause for cause in causes if cause.over_s is not None), key=lambda cause: cause.over_s or 0.0)
    dropped = set(over[:-MAX_CAUSES])
    return tuple(cause for cause in causes if cause not in dropped)
