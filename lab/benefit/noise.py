"""Whether the machine was quiet enough for figures: what is alike must have measured alike.

Pure but for `calibrate`.
"""

import os
import statistics
import time
from collections.abc import Mapping, Sequence

LIMITS = {"calibration": 0.10, "direct": 0.35, "neighbours": 0.10, "stolen": 0.02}
"""What may differ, as a share. calibration: how far a fixed piece of work on the empty node differs between samples,
and by how much it may be faster or slower than usual beside a sample that counts. direct: how far the figures without a
manager differ between rounds of one case. neighbours: how far what the neighbours do without a manager differs between
rounds, in cases whose own figures differ on any machine. stolen: the time that the hypervisor took, in the median
sample. What differs between samples or rounds is the distance of the quartiles, divided by the median."""
_LOOPS = 2_000_000
_CPUS = 8
"""On so many at most, so that a calibration is short on large machines, too."""
Calibration = tuple[float, ...]
"""How long a fixed piece of work takes on each of some CPUs, in seconds."""


def calibrate(pieces: int) -> Calibration:
    """Do the fixed piece of work on each of some CPUs, one after the other.

    Args:
        pieces: how often each CPU does it; the median counts, so that one short process beside it is not taken for a
            slower machine.
    """
    usable = os.sched_getaffinity(0)
    some = sorted(usable)[:: -(-len(usable) // _CPUS)]
    try:
        return tuple(statistics.median(_timed_on(cpu) for _ in range(pieces)) for cpu in some)
    finally:
        os.sched_setaffinity(0, usable)


def _timed_on(cpu: int) -> float:
    os.sched_setaffinity(0, {cpu})
    begun = time.perf_counter()
    total = 0
    for number in range(_LOOPS):
        total += number
    return time.perf_counter() - begun


def _distance(calibration_s: Calibration, reference_s: Calibration) -> float:
    """How far a calibration is from another one, as a share, on the CPU that differs most."""
    return max(abs(each - usually) / usually for each, usually in zip(calibration_s, reference_s, strict=True))


def is_as_fast(calibration_s: Calibration, reference_s: Calibration) -> bool:
    """Whether each CPU has the speed that it had in another calibration."""
    return _distance(calibration_s, reference_s) <= LIMITS["calibration"]


def usual(calibrations_s: Sequence[Calibration]) -> Calibration:
    """How long a calibration takes at the speeds that the CPUs together have most often; of equals, at the fastest.

    On a machine with two speeds, a median of all calibrations could lie between both.

    Args:
        calibrations_s: at least one.
    """
    fastest_first = sorted(calibrations_s, key=sum)
    most = max(([each for each in calibrations_s if is_as_fast(each, middle)] for middle in fastest_first), key=len)
    return tuple(statistics.median(cpu) for cpu in zip(*most, strict=True))


def worse(before_s: Calibration, after_s: Calibration, reference_s: Calibration) -> Calibration:
    """Of the calibrations beside a sample, the one that is farther from the usual one."""
    return max(before_s, after_s, key=lambda each: _distance(each, reference_s))


def spread_of_cpus(calibrations_s: Sequence[Calibration]) -> float:
    """The spread of the times of the CPU whose times differ most."""
    return max((spread(cpu) for cpu in zip(*calibrations_s, strict=True)), default=0.0)


def spread(values: Sequence[float]) -> float:
    """The distance of the quartiles, divided by the median; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / middle if middle else 0.0


def complaints(
    calibrations_s: Sequence[Calibration],
    direct: Mapping[str, Sequence[float]],
    neighbours: Mapping[str, Sequence[float]],
    stolen: Sequence[float],
) -> list[str]:
    """Why figures are not to be trusted, as sentences; none: the machine was quiet.

    Args:
        calibrations_s: the worse calibration beside each sample that counts.
        direct: case → its figures without a manager; only cases that measure alike on a quiet machine.
        neighbours: of the other cases, what the neighbours did without a manager.
        stolen: of each sample, what the hypervisor took.
    """
    work = "the same work on the empty machine took times that differ by {:.0%}"
    found = [
        ("calibration", work, spread_of_cpus(calibrations_s)),
        ("stolen", "the hypervisor took {:.1%} of the machine's time", statistics.median(stolen or [0.0])),
        *(
            ("direct", case + ": figures without a manager differ by {:.0%} between rounds", spread(values))
            for case, values in direct.items()
        ),
        *(
            ("neighbours", case + ": what the neighbours did without a manager differs by {:.0%}", spread(values))
            for case, values in neighbours.items()
        ),
    ]
    return [
        f"{sentence.format(value)} (limit {LIMITS[limit]:.0%})"
        for limit, sentence, value in found
        if value > LIMITS[limit]
    ]
