"""The phases of criproxy's work in which it is killed; the plan of a run, which follows from its seed; its tally."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


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

    ASKED = "asked"
    """As a plugin, criproxy has been asked about a create, and the runtime has no answer."""
    START_ASKED = "start asked"
    """The same about a start."""


RUNTIMES = ("containerd", "embedded")
"""Those of a run for which nothing is said."""
_ONLY_PLUGIN = (Phase.ASKED, Phase.START_ASKED)
PHASES_OF: Mapping[str, Sequence[Phase]] = {
    **{runtime: tuple(phase for phase in Phase if phase not in _ONLY_PLUGIN) for runtime in RUNTIMES},
    "plugin": (Phase.SENT, Phase.REPLIED, Phase.RELEASE, *_ONLY_PLUGIN),
}
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


@dataclass(slots=True)
class Tally:
    """What became of the kills on one node."""

    runtime: str
    kills: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    """Cycles in which the phase was not reached; criproxy was killed all the same."""
    violations: list[dict[str, Any]] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)
    """What ended the half before its last kill: where, and the error."""
    rest_s: list[float] = field(default_factory=list)
    """Seconds from the last call until all was as it must be."""
    checker: dict[str, Any] = field(default_factory=dict)


def plan(seed: int, runtime: str, kills: int, only: Sequence[Phase], *, lost: float, calm: float) -> list[Kill]:
    """The cycles of one runtime; each phase of *only* comes as often as every other, give or take one.

    *lost* and *calm* are the shares of the cycles in which that happens.
    """
    chance = random.Random(f"{seed} {runtime}")
    phases: list[Phase] = []
    while len(phases) < kills:
        phases += chance.sample(only, len(only))
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
            lost=chance.random() < lost,
            calm=chance.random() < calm,
            after=chance.randrange(1 << 16),
            seed=chance.randrange(1 << 32),
        )
        for number, phase in enumerate(phases[:kills])
    ]
