"""How many replicas the HorizontalPodAutoscaler of Kubernetes would want: its formula, as pure functions.

It wants ceil(current × value / target) by each metric, and the most of these; within the tolerance of the target it
wants what there is. Pods without a value count against what the others say: as using nothing where there would be
more pods, and as using the target (or all that they asked for) where there would be fewer. What its behaviour over
time does (stabilisation, limits for each step) is not here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

TOLERANCE = 0.1
"""Kubernetes' default of both tolerances."""
MOST_REPLICAS = 1_000_000_000
"""No metric wants more, whatever its value."""
_ROUNDING = 1e-9
"""What floating point adds to a quotient must not be one more replica."""


class Why(Enum):
    """What a proposal follows from."""

    MORE = "above the threshold"
    FEWER = "below the threshold"
    WITHIN = "within the tolerance"
    MISSING = "undecided: pods have no value"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one metric shall be."""

    name: str
    target: float
    tolerance_up: float = TOLERANCE
    tolerance_down: float = TOLERANCE

    @property
    def up(self) -> float:
        """Above it, there are to be more replicas."""
        return self.target * (1 + self.tolerance_up)

    @property
    def down(self) -> float:
        """Below it, there are to be fewer."""
        return self.target * (1 - self.tolerance_down)

    def is_within(self, ratio: float) -> bool:
        """Whether value / target is near enough to 1 that nothing changes."""
        return 1 - self.tolerance_down - _ROUNDING <= ratio <= 1 + self.tolerance_up + _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one metric wants."""

    target: Target
    value: float | None
    """None: nobody knows it."""
    replicas: int | None
    """None: it proposes nothing."""
    why: Why
    missing: int = 0
    """Pods without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What all metrics together want."""

    current: int
    desired: int
    """Within the limits."""
    wanted: int
    """Before the limits."""
    proposals: tuple[Proposal, ...] = ()
    note: str = ""
    """Why it is not what the metrics want, in one sentence; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The fewest and the most replicas."""

    fewest: int = 1
    most: int = 10

    def clamp(self, wanted: int) -> int:
        """*wanted*, within the limits."""
        return min(max(wanted, self.fewest), self.most)


def by_value(target: Target, current: int, value: float | None) -> Proposal:
    """What a metric of one value wants, such as the node's use of CPUs (type Object or External with a Value).

    With 0 replicas it wants nothing: the autoscaler is off.
    """
    if value is None:
        return Proposal(target=target, value=None, replicas=None, why=Why.UNKNOWN)
    return _of_all(target, current, value, current)


def by_pods(target: Target, current: int, values: Sequence[float | None], elsewhere: int = 0) -> Proposal:
    """What a metric of pods wants: the mean of their *values* (type Pods), None for a pod without one.

    Args:
        target: what the mean shall be.
        current: replicas that there are.
        values: of the pods that are there, in any order.
        elsewhere: further pods, which have no value.
    """
    known = [each for each in values if each is not None]
    missing = len(values) - len(known) + elsewhere
    if not known:
        return Proposal(target=target, value=None, replicas=None, why=Why.UNKNOWN, missing=missing)
    if missing and current:
        return _with_missing(target, current, known, missing)
    return replace(_of_all(target, current, sum(known) / len(known), len(known)), missing=missing)


def _of_all(target: Target, current: int, value: float, pods: int) -> Proposal:
    """What the *value* of all replicas wants, which is that of so many *pods*."""
    ratio = value / target.target
    if target.is_within(ratio):
        why, replicas = Why.WITHIN, current
    else:
        why, replicas = Why.MORE if ratio > 1 else Why.FEWER, _ceil(ratio * pods) if pods else 0
    return Proposal(target=target, value=value, replicas=replicas if current else None, why=why)


def _with_missing(target: Target, current: int, known: Sequence[float], missing: int) -> Proposal:
    """The same where some pods have no value: they never make the direction another one, nor the step larger."""
    value = sum(known) / len(known)
    ratio = value / target.target
    assumed = target.target if ratio < 1 else 0.0
    pods = len(known) + missing
    ratio_then = (sum(known) + assumed * missing) / pods / target.target
    replicas, why = _ceil(ratio_then * pods), Why.MORE if ratio > 1 else Why.FEWER
    turned = (ratio < 1 < ratio_then) or (ratio_then < 1 < ratio)
    against = (ratio_then < 1 and replicas > current) or (ratio_then > 1 and replicas < current)
    if target.is_within(ratio_then) or turned or against:
        replicas, why = current, Why.MISSING
    return Proposal(target=target, value=value, replicas=replicas, why=why, missing=missing)


def recommend(current: int, proposals: Sequence[Proposal], limits: Limits) -> Recommendation:
    """What is wanted together: the most; while a metric is not known, never fewer than there are.

    Args:
        current: replicas that there are; with 0 the autoscaler is off.
        proposals: one for each metric.
        limits: fewest and most.
    """
    made = tuple(proposals)
    if current == 0:
        return Recommendation(
            current=0, desired=0, wanted=0, proposals=made, note="with 0 replicas the autoscaler does nothing"
        )
    clamped = limits.clamp(current)
    if clamped != current:  # before any metric is asked
        note = f"at least {limits.fewest} and at most {limits.most} replicas are allowed"
        return Recommendation(current=current, desired=clamped, wanted=current, proposals=made, note=note)
    known = [each.replicas for each in made if each.replicas is not None]
    unknown = ", ".join(each.target.name for each in made if each.replicas is None)
    wanted = max(known, default=current)
    if not known:
        note = "no metric has a value"
    elif unknown and wanted < current:
        wanted, note = current, f"no scale-down while unknown: {unknown}"
    elif limits.clamp(wanted) != wanted:
        note = f"{wanted} wanted; at least {limits.fewest} and at most {limits.most} are allowed"
    else:
        note = ""
    return Recommendation(current=current, desired=limits.clamp(wanted), wanted=wanted, proposals=made, note=note)


def _ceil(value: float) -> int:
    return math.ceil(min(max(value, 0.0), MOST_REPLICAS) - _ROUNDING)
