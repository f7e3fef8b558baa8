"""A sample counts only while the machine is as fast as usual, as long as patience lasts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.benefit.cases import DEFAULT, FULL, QUICK
from lab.benefit.gate import NONE, Gate, Patience, is_taken_again, patience
from lab.benefit.noise import Calibration, is_as_fast
from lab.benefit.pods import SilentError
from lab.benefit.samples import Sample

FAST, SLOW = (0.058, 0.058), (0.058, 0.1)
CALIBRATION_S, SAMPLE_S = 0.5, 10.0
PATIENT = Patience(learn_s=20.0, sample_s=60.0, run_s=1000.0, repeats=2)


@dataclass
class Machine:
    """A machine one of whose CPUs has two speeds. Only work advances its clock. It is fast after the last spell."""

    spells_s: Sequence[float]
    """How long it is fast, then slow, then fast and so on."""
    now_s: float = 0.0
    samples: list[float] = field(default_factory=list)
    """When samples began."""

    def speed(self) -> Calibration:
        """How long a calibration that begins now takes."""
        end = 0.0
        for number, spell_s in enumerate(self.spells_s):
            end += spell_s
            if self.now_s < end:
                return SLOW if number % 2 else FAST
        return FAST

    def calibrate(self) -> Calibration:
        """Half a second."""
        found = self.speed()
        self.now_s += CALIBRATION_S
        return found

    def sample(self) -> Sample:
        """Ten seconds."""
        self.samples.append(self.now_s)
        self.now_s += SAMPLE_S
        return Sample(1.0, 10.0, "0-1", ["0-1"], 1.0, 0.0, 0, 10, 0.5, 0.0, {})

    def gate(self, patient: Patience = PATIENT) -> Gate:
        """A gate that learned how fast the machine is."""
        made = Gate(patient, self.calibrate, lambda: self.now_s)
        made.learn(1)
        return made


@pytest.mark.parametrize(
    ("before_s", "after_s", "left", "expected"),
    [
        pytest.param(1.0, 1.05, PATIENT, False, id="usual"),
        pytest.param(1.0, 1.5, PATIENT, True, id="slower-after"),
        pytest.param(1.5, 1.0, PATIENT, True, id="slower-before"),
        pytest.param(1.0, 0.6, PATIENT, True, id="faster-after"),
        pytest.param(1.5, 1.5, PATIENT, True, id="slower"),
        pytest.param(1.0, 1.5, Patience(0, 9, 9, 0), False, id="no-repeats"),
        pytest.param(1.0, 1.5, Patience(0, 9, 0, 2), False, id="no-time"),
        pytest.param(1.0, 1.5, Patience(0, 0, 9, 2), False, id="no-wait"),
        pytest.param(1.5, 1.0, Patience(0, 0, 9, 2), True, id="no-wait-is-needed"),
    ],
)
def test_when_a_sample_is_taken_again(before_s: float, after_s: float, left: Patience, *, expected: bool) -> None:
    """Where the machine was not as fast as usual, and another sample can be better."""
    assert is_taken_again((before_s,), (after_s,), (1.0,), left) is expected


def test_patience_is_that_of_the_plan() -> None:
    """A long run may wait as long as it takes by itself; a quick one does not wait."""
    assert patience(QUICK) == NONE
    for plan in (DEFAULT, FULL):
        assert patience(plan).run_s == plan.duration_s
        assert patience(plan).learn_s >= 15
    assert 20 * 60 <= DEFAULT.duration_s <= 30 * 60


def test_a_quiet_machine_has_no_delay() -> None:
    """The calibration after a sample is the one before the next."""
    machine = Machine([])
    gate = machine.gate()
    for number in range(3):
        counted = gate.take(machine.sample, f"sample {number}")
        assert (counted.before_s, counted.after_s) == (FAST, FAST)
    account = gate.account()
    assert (account.reference_s, account.waited_s, account.taken_again) == (FAST, 0.0, ())
    assert len(account.learned_s) == PATIENT.learn_s / CALIBRATION_S
    assert machine.now_s == PATIENT.learn_s + 3 * (SAMPLE_S + CALIBRATION_S)


def test_the_usual_speed_is_learned_in_stretches() -> None:
    """What happens between them counts as little as a short spell does."""
    machine = Machine([6.0, 8.0])
    gate = Gate(PATIENT, machine.calibrate, lambda: machine.now_s)
    for _ in range(4):
        gate.learn(4)
        machine.sample()
    account = gate.account()
    assert len(account.learned_s) == PATIENT.learn_s / CALIBRATION_S
    assert account.reference_s == FAST


def test_it_waits_for_the_usual_speed() -> None:
    """And says for how long."""
    machine = Machine([19.0, 31.0])
    gate = machine.gate()
    counted = gate.take(machine.sample, "redis")
    assert (counted.before_s, counted.after_s) == (FAST, FAST)
    assert machine.samples == [50.0 + CALIBRATION_S]
    assert gate.account().waited_s == 30.5
    assert gate.account().taken_again == ()


def test_a_sample_in_which_the_speed_changed_is_taken_again() -> None:
    """It is named, and its time is stated."""
    machine = Machine([25.0, 10.0])
    gate = machine.gate()
    counted = gate.take(machine.sample, "redis")
    account = gate.account()
    assert (counted.before_s, counted.after_s) == (FAST, FAST)
    assert (account.taken_again, account.dropped_s) == (("redis",), SAMPLE_S)
    assert account.as_json() == {"reference_s": [*FAST], "waited_s": 5, "dropped_s": 10, "taken_again": 1}


def test_the_third_sample_counts_anyway() -> None:
    """Its calibrations say that the speed changed, so that the noise check can complain."""
    machine = Machine([25.0, 10.0, 6.0, 10.0, 6.0, 10.0])
    gate = machine.gate()
    counted = gate.take(machine.sample, "redis")
    assert (counted.before_s, counted.after_s) == (FAST, SLOW)
    assert gate.account().taken_again == ("redis", "redis")


def test_patience_ends() -> None:
    """After a minute for a sample, and in the whole run after the time that the run may wait."""
    machine = Machine([19.0, 10_000.0])
    gate = machine.gate(Patience(learn_s=20.0, sample_s=60.0, run_s=100.0, repeats=2))
    begun = machine.now_s
    took_s = []
    for number in range(3):
        counted = gate.take(machine.sample, f"sample {number}")
        assert (counted.before_s, counted.after_s) == (SLOW, SLOW)
        took_s.append(machine.now_s - begun)
        begun = machine.now_s
    assert took_s == [waited_s + SAMPLE_S + CALIBRATION_S for waited_s in (60, 40, 0)]
    assert gate.account().waited_s == 100
    assert gate.account().taken_again == ()


def test_after_a_failure_the_machine_is_looked_at_again() -> None:
    """The calibration before a sample that failed says nothing of the next."""
    machine = Machine([22.0, 14.0])
    gate = machine.gate()

    def fail() -> Sample:
        machine.now_s += 5.0
        raise SilentError("it was silent")

    with pytest.raises(SilentError):
        gate.take(fail, "redis")
    counted = gate.take(machine.sample, "redis")
    assert counted.before_s == FAST
    assert machine.samples[0] >= 36.0


@given(st.lists(st.floats(1.0, 200.0), max_size=12), st.floats(0.0, 400.0))
def test_every_machine_is_done_in_time(spells_s: list[float], run_s: float) -> None:
    """Each sample that counts was taken at the usual speed, unless patience had ended."""
    machine = Machine(spells_s)
    patient = Patience(20.0, 60.0, run_s, 2)
    gate = machine.gate(patient)
    for _ in range(10):
        before = gate.account()
        counted = gate.take(machine.sample, "sample")
        after = gate.account()
        usual = [is_as_fast(each, after.reference_s) for each in (counted.before_s, counted.after_s)]
        repeats = len(after.taken_again) - len(before.taken_again)
        waited_s = after.waited_s - before.waited_s
        is_over = after.waited_s + after.dropped_s + SAMPLE_S >= run_s
        assert all(usual) or repeats == patient.repeats or waited_s >= 60 or is_over
        assert repeats <= patient.repeats
    account = gate.account()
    assert account.waited_s + account.dropped_s <= run_s + CALIBRATION_S
    assert len(machine.samples) == 10 + len(account.taken_again)
    assert account.reference_s in (FAST, SLOW)
