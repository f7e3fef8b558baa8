"""A whole run: rounds in which all managers take turns, in an order that a seed shuffles.

The CPUs of a virtual machine may have two speeds, each for seconds or minutes: other guests of its host use the sibling
threads of their cores. A sample is taken again where a fixed piece of work right before or right after it took another
time than usual. Whether a sample counts never depends on its figure.
"""

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc

from lab.bench.processes import StartError
from lab.benefit.cases import Case, Manager, Plan
from lab.benefit.noise import Calibration, calibrate, is_as_fast, usual, worse
from lab.benefit.pods import SilentError
from lab.benefit.samples import Bench, Sample

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
