"""Takes samples only while the machine is as fast as usual.

The CPUs of a virtual machine may have two speeds, each for seconds or minutes: other guests of its host use the sibling
threads of their cores, so that each CPU changes on its own. A sample counts only if a short calibration right before it
and one right after it took as long as usual. Whether a sample counts never depends on its figure.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lab.benefit.cases import Plan
from lab.benefit.noise import Calibration, calibrate, is_as_fast, rounded, usual
from lab.benefit.samples import Sample

_PIECES, _QUICK_PIECES = 3, 1
_LEARN_S = 20.0
_SAMPLE_S = 60.0
_REPEATS = 2


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a run may look for the usual speed of the machine, and wait for it."""

    learn_s: float
    """How long it calibrates while it warms up; in several stretches, so that one spell does not decide."""
    sample_s: float
    """How long it may wait for one sample."""
    run_s: float
    """How long all waiting and all samples that do not count may take together."""
    repeats: int
    """How often one sample may be taken again."""


NONE = Patience(0.0, 0.0, 0.0, 0)


def patience(plan: Plan) -> Patience:
    """A run takes at most about twice as long as on a quiet machine; one without figures never waits."""
    return Patience(_LEARN_S, _SAMPLE_S, plan.duration_s, _REPEATS) if plan.has_figures else NONE


def is_taken_again(before_s: Calibration, after_s: Calibration, reference_s: Calibration, left: Patience) -> bool:
    """Whether a sample does not count, and another one is taken for it.

    A sample counts in any case when that would not help: nothing may be repeated any more, or the machine is not as
    fast as usual and the run may not wait. The noise check looks at it then.

    Args:
        before_s: the calibration right before the sample.
        after_s: the one right after it.
        reference_s: how long a calibration usually takes.
        left: what is left of the run's patience for this sample.
    """
    was_usual, is_usual = is_as_fast(before_s, reference_s), is_as_fast(after_s, reference_s)
    if was_usual and is_usual:
        return False
    return left.repeats > 0 and left.run_s > 0 and (is_usual or left.sample_s > 0)


@dataclass(frozen=True, slots=True)
class Counted:
    """A sample that counts, with the calibrations right before and right after it."""

    sample: Sample
    before_s: Calibration
    after_s: Calibration


@dataclass(frozen=True, slots=True)
class Account:
    """What a gate did in a run."""

    reference_s: Calibration
    """How long a calibration usually took."""
    learned_s: tuple[Calibration, ...] = ()
    """The calibrations of which this is the usual one."""
    waited_s: float = 0.0
    dropped_s: float = 0.0
    """How long the samples took that did not count."""
    taken_again: tuple[str, ...] = ()
    """The samples that did not count, each as often as that happened."""

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return {
            "reference_s": rounded(self.reference_s),
            "waited_s": round(self.waited_s),
            "dropped_s": round(self.dropped_s),
            "taken_again": len(self.taken_again),
        }


@dataclass(slots=True)
class Gate:
    """Waits for the machine before each sample, and takes a sample again during which the speed changed."""

    patience: Patience
    calibrate: Callable[[], Calibration]
    clock: Callable[[], float] = time.monotonic
    _learned_s: list[Calibration] = field(default_factory=list)
    _reference_s: Calibration = ()
    _newest_s: Calibration | None = None
    """The newest calibration, unless something ran after it."""
    _waited_s: float = 0.0
    _dropped_s: float = 0.0
    _again: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan) -> "Gate":
        """The gate of a run on this machine."""
        return cls(patience(plan), partial(calibrate, _PIECES if plan.has_figures else _QUICK_PIECES))

    def learn(self, parts: int) -> None:
        """Calibrate, at least once, for one of *parts* stretches; call this as often before the first sample."""
        end = self.clock() + self.patience.learn_s / parts
        while True:
            self._newest_s = self.calibrate()
            self._learned_s.append(self._newest_s)
            if self.clock() >= end:
                break
        self._reference_s = usual(self._learned_s)

    def take(self, take: Callable[[], Sample], what: str) -> Counted:
        """Wait, take the sample *what*, and take it again while it does not count."""
        left_s, repeats = self.patience.sample_s, self.patience.repeats
        while True:
            before_s, waited_s = self._wait(left_s)
            left_s -= waited_s
            begun = self.clock()
            sample = take()
            took_s = self.clock() - begun
            self._newest_s = after_s = self.calibrate()
            left = Patience(0.0, left_s, self._left_s() - took_s, repeats)
            if not is_taken_again(before_s, after_s, self._reference_s, left):
                return Counted(sample, before_s, after_s)
            repeats -= 1
            self._dropped_s += took_s
            self._again.append(what)

    def account(self) -> Account:
        """What was done so far."""
        return Account(self._reference_s, tuple(self._learned_s), self._waited_s, self._dropped_s, tuple(self._again))

    def _left_s(self) -> float:
        return self.patience.run_s - self._waited_s - self._dropped_s

    def _wait(self, at_most_s: float) -> tuple[Calibration, float]:
        """Calibrate until the machine is as fast as usual or patience ends: the newest calibration, and the wait."""
        calibrated_s = self.calibrate() if self._newest_s is None else self._newest_s
        self._newest_s = None
        begun = now = self.clock()
        end = begun + min(at_most_s, self._left_s())
        while now < end and not is_as_fast(calibrated_s, self._reference_s):
            calibrated_s = self.calibrate()
            now = self.clock()
        self._waited_s += now - begun
        return calibrated_s, now - begun
