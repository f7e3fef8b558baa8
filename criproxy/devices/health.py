"""The health of one card: Unhealthy as soon as something is wrong, Healthy again once nothing was for a while.

What is wrong either lasts until it is said to be over (a node that vanished, a call that fails, a command that says
so), or happens at one moment (an XID error). Several such causes can hold at once. A card recovers when the last of
them is over and no other has come for as long as the hold-down; a card that comes and goes does not flap.
"""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Final, Literal

HOLD_DOWN_S: Final = 30.0
"""Seconds without any cause after which a card is Healthy again."""
MAX_CAUSES: Final = 16
"""Of those that are over, so many are remembered until the card recovers; the oldest go first."""
MAX_SAID: Final = 200
"""Characters of a command's output."""

Status = Literal["Healthy", "Unhealthy"]
"""In the kubelet's words."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was noticed about a card."""

    key: str
    """What it is about; the end of a cause has the key of its beginning."""
    kind: Literal["began", "ended", "happened"]
    reason: str = ""
    """For people: ``XID 79``."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a card is Unhealthy."""

    key: str
    reason: str
    since_s: float
    over_s: float | None = None
    """When it was last seen to be over; None: it lasts."""

    @property
    def lasts(self) -> bool:
        """Whether it holds now."""
        return self.over_s is None


@dataclass(frozen=True, slots=True)
class CardHealth:
    """What is known of a card at one moment; `step` leads to the next."""

    at_s: float
    """The time of the last step, in seconds of any clock that does not go back."""
    since_s: float
    """Since when the card is as it is."""
    causes: tuple[Cause, ...] = ()
    """In the order in which they began; none: the card is Healthy."""
    hold_down_s: float = HOLD_DOWN_S

    @property
    def healthy(self) -> bool:
        """Whether the kubelet may allocate the card."""
        return not self.causes

    @property
    def status(self) -> Status:
        """The same for the kubelet."""
        return "Healthy" if self.healthy else "Unhealthy"

    @property
    def reason(self) -> str:
        """Why it is Unhealthy: what holds now, or else what it recovers from; empty if it is Healthy."""
        lasting = [cause.reason for cause in self.causes if cause.lasts]
        return "; ".join(dict.fromkeys(lasting or [cause.reason for cause in self.causes]))

    @property
    def recovers_at_s(self) -> float | None:
        """When it will be Healthy if nothing else happens; None: it is, or a cause lasts."""
        over = [cause.over_s for cause in self.causes if cause.over_s is not None]
        return max(over) + self.hold_down_s if over and len(over) == len(self.causes) else None


def new(at_s: float, *, hold_down_s: float = HOLD_DOWN_S) -> CardHealth:
    """A card that was found at *at_s*, and is Healthy until something else is known."""
    return CardHealth(at_s, at_s, hold_down_s=hold_down_s)


def step(health: CardHealth, at_s: float, *changes: Change) -> CardHealth:
    """What is known at *at_s*, after all *changes* of that moment; a time before that of *health* counts as that.

    Changes that were noticed at different times need a step each.
    """
    now_s = max(health.at_s, at_s) if isfinite(at_s) else health.at_s
    recovered = _recovered(health, now_s)
    causes = recovered.causes
    for change in changes:
        causes = _changed(causes, change, now_s)
    since_s = recovered.since_s if recovered.healthy == (not causes) else now_s
    return replace(recovered, at_s=now_s, since_s=since_s, causes=_bounded(causes))


def began(key: str, reason: str) -> Change:
    """Something is wrong until `ended` says otherwise."""
    return Change(key, "began", reason)


def ended(key: str) -> Change:
    """What began under the same key is over; of no consequence if nothing did."""
    return Change(key, "ended")


def happened(key: str, reason: str) -> Change:
    """Something was wrong at this moment."""
    return Change(key, "happened", reason)


def xid_event(xid: int) -> Change:
    """The driver reported an XID error."""
    return happened(f"xid {xid}", f"XID {xid}")


def node_vanished(path: str) -> Change:
    """A device node is not there any more."""
    return began(f"node {path}", f"{path} is missing")


def node_back(path: str) -> Change:
    """A device node is there again."""
    return ended(f"node {path}")


def call_failed(call: str, error: str) -> Change:
    """A call of the driver's library failed for this card."""
    return began(f"call {call}", f"{call}: {error}")


def call_works(call: str) -> Change:
    """A call of the driver's library works."""
    return ended(f"call {call}")


def command_says_bad(output: str) -> Change:
    """The class's health command said that the card is bad, and in *output* why."""
    said = " ".join(output.split())[:MAX_SAID]
    return began(
        "command", f"the health command reports: {said}" if said else "the health command reports it as unhealthy"
    )


def command_says_good() -> Change:
    """The class's health command said that the card is good."""
    return ended("command")


def _recovered(health: CardHealth, now_s: float) -> CardHealth:
    recovers_at_s = health.recovers_at_s
    if recovers_at_s is None or now_s < recovers_at_s:
        return health
    return replace(health, since_s=recovers_at_s, causes=())


def _changed(causes: tuple[Cause, ...], change: Change, now_s: float) -> tuple[Cause, ...]:
    """The causes after one change; each stays at the place where it first was."""
    old = next((cause for cause in causes if cause.key == change.key), None)
    changed = _first(change, now_s) if old is None else _again(old, change, now_s)
    if old is None:
        return causes if changed is None else (*causes, changed)
    return tuple(changed if cause is old and changed is not None else cause for cause in causes)


def _first(change: Change, now_s: float) -> Cause | None:
    if change.kind == "ended":
        return None
    return Cause(change.key, change.reason, now_s, now_s if change.kind == "happened" else None)


def _again(old: Cause, change: Change, now_s: float) -> Cause:
    """A cause that was there before; one that is over begins anew, with its first beginning."""
    if change.kind == "began":
        return replace(old, reason=change.reason, over_s=None)
    if change.kind == "happened" and not old.lasts:
        return replace(old, reason=change.reason, over_s=now_s)
    return replace(old, over_s=now_s) if change.kind == "ended" and old.lasts else old


def _bounded(causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Those that last, and the newest of the others: a card can report any number of different errors."""
    over = sorted((cause for cause in causes if cause.over_s is not None), key=lambda cause: cause.over_s or 0.0)
    dropped = set(over[:-MAX_CAUSES])
    return tuple(cause for cause in causes if cause not in dropped)
