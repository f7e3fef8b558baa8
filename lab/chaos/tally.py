"""What a half of a run finds out."""

from dataclasses import dataclass, field
from typing import Any


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
    """What ended the half before its last kill: where, the error, and the last calls of our kubelets."""
    rest_s: list[float] = field(default_factory=list)
    """Seconds from the last call until all was as it must be."""
    away_s: list[float] = field(default_factory=list)
    """Seconds from SIGKILL until criproxy was ready again."""
    done: dict[str, int] = field(default_factory=dict)
    checker: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
