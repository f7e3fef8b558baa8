"""Whether the machine was quiet enough for figures: what is alike must have measured alike.

Pure but for `calibrate`.
"""

import os
import statistics
import time
from collections.abc import Mapping, Sequence

LIMITS = {
    "calibration": 0.10,
    "direct": 0.35,
    "neighbours": 0.10,
    "stolen": 0.02,
}
"""What may differ, as a share. calibration: how far a fixed piece of work on the empty node differs between rounds.
direct: how far the figures without a manager differ between rounds of one case. neighbours: how far what the neighbours
do without a manager differs between rounds, in cases whose own figures differ on any machine. These are the distance of
the quartiles, divided by the median. stolen: the time that the hypervisor took, in the median sample."""
_LOOPS = 2_000_000
_PIECES = 9
"""On each CPU; the median counts, so that one short process beside it is not taken for a slower machine."""


def calibrate() -> float:
    """How long a fixed piece of work takes, in seconds: on each CPU, the slowest counts."""
    usable = os.sched_getaffinity(0)
    try:
        return max(statistics.median(_timed_on(cpu) for _ in range(_PIECES)) for cpu in usable)
    finally:
        os.sched_setaffinity(0, usable)


def _timed_on(cpu: int) -> float:
    os.sched_setaffinity(0, {cpu})
    begun = time.perf_counter()
    total = 0
    for number in range(_LOOPS):
        total += number
    return time.perf_counter() - begun


def spread(values: Sequence[float]) -> float:
    """The distance of the quartiles, divided by the median; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / middle if middle else 0.0


def complaints(
    calibrations_s: Sequence[float],
    direct: Mapping[str, Sequence[float]],
    neighbours: Mapping[str, Sequence[float]],
    stolen: Sequence[float],
) -> list[str]:
    """Why figures are not to be trusted, as sentences; none: the machine was quiet.

    Args:
        calibrations_s: what `calibrate` returned before each round.
        direct: case → its figures without a manager; only cases that measure alike on a quiet machine.
        neighbours: of the other cases, what the neighbours did without a manager.
        stolen: of each sample, what the hypervisor took.
    """
    found = []
    if (calibrated := spread(calibrations_s)) > LIMITS["calibration"]:
        found.append(
            f"the same work on the empty machine took times that differ by {calibrated:.0%}"
            f" (limit {LIMITS['calibration']:.0%})"
        )
    if stolen and (taken := statistics.median(stolen)) > LIMITS["stolen"]:
        found.append(f"the hypervisor took {taken:.1%} of the machine's time (limit {LIMITS['stolen']:.0%})")
    for limit, cases, what in (
        ("direct", direct, "figures without a manager differ"),
        ("neighbours", neighbours, "what the neighbours did without a manager differs"),
    ):
        found += [
            f"{case}: {what} by {differs:.0%} between rounds (limit {LIMITS[limit]:.0%})"
            for case, values in cases.items()
            if (differs := spread(values)) > LIMITS[limit]
        ]
    return found
