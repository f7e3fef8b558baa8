"""The formula of Kubernetes' HorizontalPodAutoscaler for the number of replicas, as pure functions.

Each metric proposes ceil(current × value / target), or the current number within the tolerance of the target; the
largest proposal counts. Pods without a value count against the direction of the others: as using nothing if there would
be more pods, and as using the target (or all that they requested) if there would be fewer. Its behavior over time
(stabilization, limits for each step) is not included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

TOLERANCE = 0.1
"""Kubernetes' default for both tolerances."""
MOST_REPLICAS = 1_000_000_000
"""The maximum of a proposal, whatever the value of its metric."""
_ROUNDING = 1e-9
"""Rounding errors of floating point must not add a replica."""


class Why(Enum):
    """The reason for a proposal."""

    MORE = "above the threshold"
    FEWER = "below the threshold"
    WITHIN = "within the tolerance"
    MISSING = "undecided: pods have no value"
    UNKNOWN = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of one metric."""

    name: str
    target: float
    tolerance_up: float = TOLERANCE
    tolerance_down: float = TOLERANCE

    @property
    def up(self) -> float:
        """The value above which there should be more replicas."""
        return self.target * (1 + self.tolerance_up)

    @property
    def down(self) -> float:
        """The value below which there should be fewer replicas."""
        return self.target * (1 - self.tolerance_down)

    def is_within(self, ratio: float) -> bool:
        """Whether *ratio*, value / target, is so close to 1 that nothing changes."""
        return 1 - self.tolerance_down - _ROUNDING <= ratio <= 1 + self.tolerance_up + _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The number of replicas that follows from one metric."""

    target: Target
    value: float | None
    """None: the value is unknown."""
    replicas: int | None
    """None: there is no proposal."""
    why: Why
    missing: int = 0
    """Pods without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The number of replicas that follows from all metrics together."""

    current: int
    desired: int
    """Within the limits."""
    wanted: int
    """Before the limits."""
    proposals: tuple[Proposal, ...] = ()
    note: str = ""
    """Why the number differs from that of the metrics, in one sentence; empty if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The minimum and maximum number of replicas."""

    fewest: int = 1
    most: int = 10

    def clamp(self, wanted: int) -> int:
        """Return *wanted*, restricted to the limits."""
        return min(max(wanted, self.fewest), self.most)


def by_value(target: Target, current: int, value: float | None) -> Proposal:
    """Return the proposal of a metric with one value, such as the node's CPU use (Object, or External with a Value).

    With 0 replicas there is none: the autoscaler is off.
    """
    if value is None:
        return Proposal(target=target, value=None, replicas=None, why=Why.UNKNOWN)
    return _of_all(target, current, value, current)


def by_pods(target: Target, current: int, values: Sequence[float | None], elsewhere: int = 0) -> Proposal:
    """Return the proposal of a metric of pods, whose mean counts (type Pods).

    Args:
        target: the target of the mean.
        current: the current number of replicas.
        values: the values of the known pods, in any order; None for a pod without one.
        elsewhere: how many other pods there are, which have no value.
    """
    known = [each for each in values if each is not None]
    missing = len(values) - len(known) + elsewhere
    if not known:
        return Proposal(target=target, value=None, replicas=None, why=Why.UNKNOWN, missing=missing)
    if missing and current:
        return _with_missing(target, current, known, missing)
    return replace(_of_all(target, current, sum(known) / len(known), len(known)), missing=missing)


def _of_all(target: Target, current: int, value: float, pods: int) -> Proposal:
    """Return the proposal for a *value* that so many *pods* have on average."""
    ratio = value / target.target
    if target.is_within(ratio):
        why, replicas = Why.WITHIN, current
    else:
        why, replicas = Why.MORE if ratio > 1 else Why.FEWER, _ceil(ratio * pods) if pods else 0
    return Proposal(target=target, value=value, replicas=replicas if current else None, why=why)


def _with_missing(target: Target, current: int, known: Sequence[float], missing: int) -> Proposal:
    """Return the proposal if some pods have no value: they neither reverse the direction nor enlarge the step."""
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
    """Return the largest proposal; while a metric is unknown, no fewer than the current number.

    Args:
        current: the current number of replicas; with 0, the autoscaler is off.
        proposals: one for each metric.
        limits: the minimum and maximum.
    """
    known = [each.replicas for each in proposals if each.replicas is not None]
    unknown = ", ".join(each.target.name for each in proposals if each.replicas is None)
    wanted, allowed = max(known, default=current), f"at least {limits.fewest} and at most {limits.most}"
    note = ""
    if current == 0:
        wanted, note = 0, "with 0 replicas the autoscaler does nothing"
    elif limits.clamp(current) != current:  # regardless of the metrics
        wanted, note = current, f"{allowed} replicas are allowed"
    elif not known:
        note = "no metric has a value"
    elif unknown and wanted < current:
        wanted, note = current, f"no scale-down while unknown: {unknown}"
    elif limits.clamp(wanted) != wanted:
        note = f"the metrics call for {wanted}; {allowed} are allowed"
    desired = limits.clamp(wanted) if current else 0
    return Recommendation(current=current, desired=desired, wanted=wanted, proposals=tuple(proposals), note=note)


def _ceil(value: float) -> int:
    return math.ceil(min(max(value, 0.0), MOST_REPLICAS) - _ROUNDING)
