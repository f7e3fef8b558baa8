"""Takes samples only while the machine is as fast as usual.

The CPUs of a virtual machine may have two speeds, each for seconds or minutes: other guests of its host use the sibling
threads of their cores, so that each CPU changes on its own. A sample counts only if a short calibration right before it
and one right after it took as long as usual. Whether a sample counts never depends on its figure.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lab.benefit.cases import Plan
from lab.benefit.noise import Calibration, calibrate, is_as_fast, usual
from lab.benefit.samples import Sample

_PIECES, _QUICK_PIECES = 3, 1


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a run may look for the usual speed of the machine, and wait for it."""

    learn_s: float = 0.0
    """How long it calibrates while it warms up; in several stretches, so that one spell does not decide."""
    sample_s: float = 0.0
    """How long it may wait for one sample."""
    run_s: float = 0.0
    """How long all waiting and all samples that do not count may take together."""
    repeats: int = 0
    """How often one sample may be taken again."""


@dataclass(slots=True)
class Gate:
    """Waits for the machine before each sample, and takes a sample again during which the speed changed."""

    patience: Patience
    calibrate: Callable[[], Calibration]
    clock: Callable[[], float] = time.monotonic
    learned_s: list[Calibration] = field(default_factory=list)
    """The calibrations while it warmed up."""
    reference_s: Calibration = ()
    """How long a calibration usually took, of these."""
    waited_s: float = 0.0
    dropped_s: float = 0.0
    """How long the samples took that did not count."""
    taken_again: list[str] = field(default_factory=list)
    """The samples that did not count, each as often as that happened."""
    _newest_s: Calibration | None = None
    """The newest calibration, unless something ran after it."""

    @classmethod
    def of(cls, plan: Plan) -> "Gate":
        """The gate of a run, which takes at most about twice as long as on a quiet machine; a quick one never waits."""
        if not plan.has_figures:
            return cls(Patience(), partial(calibrate, _QUICK_PIECES))
        return cls(Patience(20.0, 60.0, plan.duration_s, 2), partial(calibrate, _PIECES))

    def learn(self, parts: int) -> None:
        """Calibrate, at least once, for one of *parts* stretches; call this as often before the first sample."""
        end = self.clock() + self.patience.learn_s / parts
        while True:
            self._newest_s = self.calibrate()
            self.learned_s.append(self._newest_s)
            if self.clock() >= end:
                break
        self.reference_s = usual(self.learned_s)

    def take(self, take: Callable[[], Sample], what: str) -> tuple[Sample, Calibration, Calibration]:
        """Wait, take the sample *what*, and take it again while it does not count.

        It counts in any case when another one would not help: nothing may be repeated any more, or the machine is not
        as fast as usual and the run may not wait. The noise check looks at it then.

        Returns:
            The sample, and the calibrations right before and right after it.
        """
        left_s, repeats = self.patience.sample_s, self.patience.repeats
        while True:
            before_s, waited_s = self._wait(left_s)
            left_s -= waited_s
            begun = self.clock()
            sample = take()
            took_s = self.clock() - begun
            self._newest_s = after_s = self.calibrate()
            was_usual, is_usual = (is_as_fast(each, self.reference_s) for each in (before_s, after_s))
            may_repeat = repeats > 0 and self._left_s() > took_s and (is_usual or left_s > 0)
            if (was_usual and is_usual) or not may_repeat:
                return sample, before_s, after_s
            repeats -= 1
            self.dropped_s += took_s
            self.taken_again.append(what)

    def _left_s(self) -> float:
        return self.patience.run_s - self.waited_s - self.dropped_s

    def _wait(self, at_most_s: float) -> tuple[Calibration, float]:
        """Calibrate until the machine is as fast as usual or patience ends: the newest calibration, and the wait."""
        calibrated_s = self.calibrate() if self._newest_s is None else self._newest_s
        self._newest_s = None
        begun = now = self.clock()
        end = begun + min(at_most_s, self._left_s())
        while now < end and not is_as_fast(calibrated_s, self.reference_s):
            calibrated_s = self.calibrate()
            now = self.clock()
        self.waited_s += now - begun
        return calibrated_s, now - begun
