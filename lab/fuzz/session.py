"""One fuzzing process: runs inputs until its time is over, and writes down what it did and found.

Started by `lab.fuzz` as ``python -m lab.fuzz.session SETTINGS`` (JSON), because libFuzzer never returns.
"""

import gc
import hashlib
import json
import os
import signal
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

STALL_CPU_S = 3.0
"""An input that takes longer is interrupted where it is."""
MAX_INPUT_BYTES = 2048
LEAK_ROUNDS = 2
"""At the least; more if there is time."""
LEAK_SHARE = 0.1
"""Of the time: for playing a sample of the inputs over and over, to see that nothing stays behind."""
SAMPLE_INPUTS = 20
MAX_LEAK_OBJECTS = 200
MAX_LEAK_BYTES = 1 << 19
"""More than CPython's own free lists take (2,000 tuples of each size), which fill up slowly."""
SEEDS = Path(__file__).resolve().parent / "corpus"
"""Inputs to begin with; nothing is written there."""

Run = Callable[[bytes], None]


class Stall(BaseException):
    """An input never comes to an end. No `Exception`: nothing below may catch it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a session is asked to do."""

    seconds: float
    seed: int
    corpus: str
    """Folder that inputs with something new in them are added to."""
    findings: str
    state: str
    """File for the results."""
    executions: int = 0
    """End after so many inputs instead, whatever time they take; 0 for the time."""
    max_findings: int = 20
    """A run that found this many different things ends."""
    plant: str = ""


@dataclass(slots=True)
class Results:
    """What a session did."""

    executions: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, str]] = field(default_factory=list)
    leaks: dict[str, int] = field(default_factory=dict)
    complete: bool = False


class Session:
    """Counts, records and ends; `execute` is what an engine calls."""

    def __init__(self, settings: Settings, run: Run, target_name: Callable[[bytes], str]) -> None:
        self.settings = settings
        self.results = Results()
        self._run = run
        self._target_name = target_name
        self._signatures: set[str] = set()
        self._random = Random(settings.seed)
        self._sample: list[bytes] = []
        self._begun = self._saved = time.monotonic()
        self._until = self._begun + settings.seconds * (1 - LEAK_SHARE)

    def execute(self, data: bytes) -> None:
        """Run one input. Ends the process when these were enough."""
        results = self.results
        limit = self.settings.executions
        if results.executions >= limit > 0 or (not limit and time.monotonic() >= self._until):
            self.finish()
        results.executions += 1
        target = self._target_name(data)
        results.targets[target] = results.targets.get(target, 0) + 1
        if self._is_well(data):
            self._remember(data)
        if time.monotonic() - self._saved > 1:
            self.save()

    def _is_well(self, data: bytes) -> bool:
        try:
            watched(self._run, data)
        except (Exception, Stall) as error:  # noqa: BLE001 - any is what we look for
            self.found(error, data)
            return False
        return True

    def found(self, error: BaseException, data: bytes | None) -> None:
        """Write a finding down, its input (if it has one) beside it; the same place in the code counts once."""
        steps = traceback.extract_tb(error.__traceback__)
        places = [f"{Path(step.filename).name}:{step.name}" for step in steps[-4:]]
        signature = f"{type(error).__name__} {str(error)[:40].translate(_NO_DIGITS)} {places}"
        if signature in self._signatures:
            return
        self._signatures.add(signature)
        text = "".join(traceback.format_exception(error))
        file = "" if data is None else self._keep(data)
        replay = file and f"python -m lab.fuzz --replay {file}"
        what = f"{type(error).__name__}: {error}"[:500]
        self.results.findings.append({"what": what, "file": file, "replay": replay, "traceback": text[-3000:]})
        self.save()
        if len(self._signatures) >= self.settings.max_findings:
            self.finish()

    def _keep(self, data: bytes) -> str:
        name = f"{self._target_name(data)}-{hashlib.sha1(data).hexdigest()[:16]}"  # noqa: S324 - a name
        file = Path(self.settings.findings, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return str(file)

    def _remember(self, data: bytes) -> None:
        """Keep an even sample of all inputs."""
        if len(self._sample) < SAMPLE_INPUTS:
            self._sample.append(data)
        elif (place := self._random.randrange(self.results.executions)) < SAMPLE_INPUTS:
            self._sample[place] = data

    def finish(self) -> None:
        """Look for leaks, write the results, end the process at once."""
        if len(self._signatures) < self.settings.max_findings:
            self._look_for_leaks()
        self.results.complete = True
        self.save()
        sys.stdout.flush()
        os._exit(0)

    def _look_for_leaks(self) -> None:
        """Play a sample as often as there is time; after the first round nothing more must stay behind."""
        until = self._begun + self.settings.seconds * (not self.settings.executions)
        tracemalloc.start()
        rounds, before = 0, self._footprint()
        while rounds < LEAK_ROUNDS or time.monotonic() < until:
            for data in self._sample:
                self._is_well(data)
            rounds += 1
            if rounds == 1:
                before = self._footprint()
        after = self._footprint()
        tracemalloc.stop()
        grown = {name: after[name] - before[name] for name in before}
        self.results.leaks = {"rounds": rounds, "inputs": len(self._sample), **grown}
        if grown["objects"] > MAX_LEAK_OBJECTS or grown["bytes"] > MAX_LEAK_BYTES:
            self.found(MemoryError(f"a leak: {rounds - 1} rounds of {len(self._sample)} inputs left {grown}"), None)

    def _footprint(self) -> dict[str, int]:
        gc.collect()
        return {"objects": len(gc.get_objects()), "bytes": tracemalloc.get_traced_memory()[0]}

    def save(self) -> None:
        """Write the results as they are now."""
        self._saved = time.monotonic()
        part = Path(f"{self.settings.state}.part")
        part.write_text(json.dumps(asdict(self.results)))
        part.replace(self.settings.state)


_NO_DIGITS = str.maketrans("", "", "0123456789")


def watched(run: Run, data: bytes) -> None:
    """Run one input.

    Raises:
        Stall: it took more than `STALL_CPU_S` seconds of CPU time.
    """
    signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, STALL_CPU_S)
    try:
        run(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Stall(f"more than {STALL_CPU_S:g} s of CPU time for one input")


def _load(plant: str) -> tuple[Run, Callable[[bytes], str]]:
    from lab.fuzz import targets

    if plant:
        from lab.fuzz.plants import PLANTS

        PLANTS[plant]()
    return targets.run, lambda data: targets.NAMES[targets.target_of(data)]


def _fuzz(settings: Settings) -> None:
    """Coverage of the data plane and of hpack guides the mutations."""
    import atheris

    with atheris.instrument_imports(include=["criproxy.wire", "hpack"]):
        session = Session(settings, *_load(settings.plant))
    limits = "-timeout=300", "-rss_limit_mb=4096", "-len_control=0", "-reload=0"
    options = [f"-seed={settings.seed % 2**32 or 1}", f"-max_len={MAX_INPUT_BYTES}", *limits]
    atheris.Setup([sys.argv[0], *options, settings.corpus, str(SEEDS)], session.execute)
    atheris.Fuzz()


if __name__ == "__main__":
    _fuzz(Settings(**json.loads(sys.argv[1])))
