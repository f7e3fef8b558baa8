"""A whole run: rounds in which all managers take turns, in an order that a seed shuffles.

The CPUs of a virtual machine may have two speeds, each for seconds or minutes: other guests of its host use the sibling
threads of their cores. A sample is taken again where a fixed piece of work right before or right after it took another
time than usual. Whether a sample counts never depends on its figure.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc

from lab.bench.processes import StartError
from lab.benefit.cases import Case, Manager, Plan
from lab.benefit.pods import SilentError
from lab.benefit.samples import Bench, Sample

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
        ("calibration", work, max(map(spread, zip(*calibrations_s, strict=True)), default=0.0)),
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


_WARM_UP_S = 1.0
_LEARNED = 8
"""Calibrations before each case while it warms up, from which the usual speed is learnt."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken:
    """A sample that counts."""

    round: int
    case: Case
    manager: Manager
    sample: Sample
    calibrated_s: Calibration
    """How long the fixed piece of work took beside it: the time that is farther from the usual one."""

    def as_json(self) -> dict[str, Any]:
        """One line of the raw data."""
        names = {"round": self.round, "case": self.case.name, "manager": self.manager.name}
        return {**names, **asdict(self.sample), "calibrated_s": [round(each, 4) for each in self.calibrated_s]}


@dataclass(slots=True)
class Run:
    """What a run came to."""

    pieces: int
    """Of work in a calibration."""
    tries: int
    """How often a sample may be taken because of the machine's speed."""
    taken: list[Taken] = field(default_factory=list)
    usual_s: Calibration = ()
    """How long a calibration usually takes."""
    took_s: float = 0.0
    repeated: list[str] = field(default_factory=list)
    """Samples that were taken again, with the reason."""

    def samples(self, case: str, manager: str) -> list[Sample]:
        """The samples of a case under a manager, by round."""
        found = [each for each in self.taken if (each.case.name, each.manager.name) == (case, manager)]
        return [each.sample for each in sorted(found, key=lambda each: each.round)]

    def take(self, take: Callable[[], Sample], what: str) -> tuple[Sample, Calibration]:
        """Take the sample *what*, again at most twice while the machine is not as fast as usual beside it."""
        tries = 0
        while True:
            before_s, tries = calibrate(self.pieces), tries + 1
            sample = _twice_at_most(take, what, self.repeated)
            beside_s = worse(before_s, calibrate(self.pieces), self.usual_s)
            if is_as_fast(beside_s, self.usual_s) or tries == self.tries:
                return sample, beside_s
            self.repeated.append(f"{what}: the machine had another speed")


def run(plan: Plan, bench: Bench, say: Callable[[str], None]) -> Run:
    """Take all samples of *plan*, after one short one of each case that does not count."""
    begun, learned_s = time.monotonic(), list[Calibration]()
    found = Run(pieces=3, tries=3) if plan.has_figures else Run(pieces=1, tries=1)
    for case in plan.cases:
        say(f"warming up: {case.name}")
        learned_s += [calibrate(found.pieces) for _ in range(_LEARNED if plan.has_figures else 1)]
        bench.sample(case, case.managers[0], min(_WARM_UP_S, plan.seconds), plan.seed)
    found.usual_s = usual(learned_s)
    chance = random.Random(plan.seed)
    for number in range(plan.rounds):
        for case in chance.sample(plan.cases, len(plan.cases)):
            for manager in chance.sample(case.managers, len(case.managers)):
                say(what := f"round {number + 1}/{plan.rounds}: {case.name}, {manager.name}")
                seed = plan.seed * 1000 + number  # the same load for all managers of a round
                take = partial(bench.sample, case, manager, plan.seconds, seed)
                found.taken.append(Taken(number, case, manager, *found.take(take, what)))
    found.took_s = time.monotonic() - begun
    return found


def _twice_at_most(take: Callable[[], T], what: str, repeated: list[str]) -> T:
    """Take a sample, and once more if that fails, which *repeated* is told: half an hour shall not be lost for one."""
    try:
        return take()
    except (SilentError, StartError, grpc.RpcError) as error:
        repeated.append(f"{what}: {error}")
        return take()
