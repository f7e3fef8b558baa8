"""The phases of criproxy's work in which it is killed, and the plan of a run: what follows from its seed alone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """How far something has come when criproxy dies."""

    RESERVED = "reserved"
    """A place is in the store, and the runtime has not got the create."""
    SENT = "sent"
    """The runtime has the create, and criproxy no answer."""
    REPLIED = "replied"
    """The answer to a create has gone to criproxy."""
    SHRINK_SENT = "shrink sent"
    """The runtime has an update that takes CPUs from a container, and criproxy no answer."""
    START_HELD = "start held"
    """A start waits in criproxy for others to give up CPUs."""
    RELEASE = "release"
    """A stop or removal of an owner is under way or has just been answered."""


RUNTIMES = ("containerd", "embedded")
_EARLY_SHARE = 0.15
_STARTING_MS = 500
"""Within this time criproxy has begun to answer calls, loaded what decides about containers, and asked what runs."""
POLICIES = ("static", "topology-aware")
"""With the first, everybody shares what nobody owns, so that the kernel alone shows a leak."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One cycle: what is done to one of the two nodes."""

    number: int
    phase: Phase
    variant: int
    """Which of the ways to be in that phase: each takes it modulo their number."""
    pause_ms: int
    """How long criproxy stays away."""
    early_ms: int | None
    """After so long it is killed again, while it starts; None: it is not."""
    cut: bool
    """Break all connections to the runtime some time before."""
    restart: bool
    """Restart the runtime while criproxy is away or just back."""
    foreign: bool
    """Somebody else writes a cpuset, beside criproxy."""
    lost: bool
    """The database is gone when criproxy comes back."""
    calm: bool
    """Before, all comes to rest once by itself, without the comparison that a restart brings."""
    after: int
    """What becomes of the container that was being worked on."""
    seed: int
    """Of the churn."""


@dataclass(frozen=True, slots=True)
class Shares:
    """In what part of the cycles something happens."""

    lost: float = 0.1
    """`Kill.lost`."""
    calm: float = 0.1
    """`Kill.calm`."""


def plan(
    seed: int, runtime: str, kills: int, only: Sequence[Phase] = tuple(Phase), shares: Shares = Shares()
) -> list[Kill]:
    """The cycles of one runtime; each phase of *only* comes as often as every other, give or take one."""
    chance = random.Random(f"{seed} {runtime}")
    phases = _shuffled(only, kills, chance)
    return [
        Kill(
            number=number,
            phase=phase,
            variant=chance.randrange(1 << 16),
            pause_ms=chance.choice((0, 0, 50, 200)),
            early_ms=chance.randrange(_STARTING_MS) if chance.random() < _EARLY_SHARE else None,
            cut=chance.random() < 0.3,
            restart=chance.random() < 0.08,
            foreign=chance.random() < 0.3,
            lost=chance.random() < shares.lost,
            calm=chance.random() < shares.calm,
            after=chance.randrange(1 << 16),
            seed=chance.randrange(1 << 32),
        )
        for number, phase in enumerate(phases)
    ]


def _shuffled(phases: Sequence[Phase], count: int, chance: random.Random) -> list[Phase]:
    found: list[Phase] = []
    while len(found) < count:
        found += chance.sample(phases, len(phases))
    return found[:count]
