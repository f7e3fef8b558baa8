"""A whole run: rounds in which all managers take turns, in an order that a seed shuffles."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lab.bench.processes import StartError
from lab.benefit.cases import Case, Manager, Plan
from lab.benefit.gate import Gate
from lab.benefit.noise import Calibration, is_as_fast, rounded, worse
from lab.benefit.pods import SilentError
from lab.benefit.samples import Bench, Sample

_WARM_UP_S = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """One sample to take."""

    round: int
    case: Case
    manager: Manager


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn that was taken."""

    turn: Turn
    sample: Sample
    calibrated_s: tuple[Calibration, Calibration]
    """How long a fixed piece of work took on the empty node, right before the sample and right after it."""

    def as_json(self) -> dict[str, Any]:
        """One line of the raw data."""
        turn = self.turn
        names = {"round": turn.round, "case": turn.case.name, "manager": turn.manager.name}
        calibrated_s = [rounded(each) for each in self.calibrated_s]
        return {**names, **asdict(self.sample), "calibrated_s": calibrated_s}


def turns(plan: Plan) -> Iterator[list[Turn]]:
    """The turns of each round: all cases, and for each its managers in a new order."""
    chance = random.Random(plan.seed)
    for number in range(plan.rounds):
        cases = list(plan.cases)
        chance.shuffle(cases)
        yield [
            Turn(number, case, manager)
            for case in cases
            for manager in chance.sample(case.managers, len(case.managers))
        ]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run came to."""

    taken: list[Taken]
    gate: Gate
    """How fast the machine usually was, and how long the run waited for that speed."""
    took_s: float
    repeated: list[str] = field(default_factory=list)
    """Samples that failed once and were taken again, with the reason."""

    def samples(self, case: str, manager: str) -> list[Sample]:
        """The samples of a case under a manager, by round."""
        found = [each for each in self.taken if (each.turn.case.name, each.turn.manager.name) == (case, manager)]
        return [each.sample for each in sorted(found, key=lambda each: each.turn.round)]

    def calibrations_s(self) -> list[Calibration]:
        """How long a fixed piece of work took beside each sample: the time that is farther from the usual one."""
        return [worse(*each.calibrated_s, self.gate.reference_s) for each in self.taken]

    def unusual(self) -> int:
        """How many samples count although the machine was faster or slower than usual."""
        return sum(not is_as_fast(each, self.gate.reference_s) for each in self.calibrations_s())


def run(plan: Plan, bench: Bench, console: Console) -> Run:
    """Take all samples of *plan*, after one short one of each case that does not count."""
    taken: list[Taken] = []
    gate = Gate.of(plan)
    stretches = len(plan.cases) + 1
    repeated: list[str] = []
    begun = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        total = len(plan.cases) + plan.rounds * sum(len(case.managers) for case in plan.cases)
        task = progress.add_task("warming up", total=total)
        for case in plan.cases:
            gate.learn(stretches)
            bench.sample(case, case.managers[0], min(_WARM_UP_S, plan.seconds), plan.seed)
            progress.advance(task)
        gate.learn(stretches)
        for number, turns_of_round in enumerate(turns(plan)):
            for turn in turns_of_round:
                what = f"round {number + 1}/{plan.rounds}: {turn.case.name}, {turn.manager.name}"
                progress.update(task, description=what)
                seed = plan.seed * 1000 + number  # the same load for all managers of a round
                take = partial(bench.sample, turn.case, turn.manager, plan.seconds, seed)
                sample, before_s, after_s = _twice_at_most(partial(gate.take, take, what), what, repeated)
                taken.append(Taken(turn, sample, (before_s, after_s)))
                progress.advance(task)
    return Run(taken, gate, time.monotonic() - begun, repeated)


def _twice_at_most(take: Callable[[], T], what: str, repeated: list[str]) -> T:
    """Take a sample, and once more if that fails, which *repeated* is told: half an hour shall not be lost for one."""
    try:
        return take()
    except (SilentError, StartError, grpc.RpcError) as error:
        repeated.append(f"{what}: {error}")
        return take()
