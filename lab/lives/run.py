"""Runs lives, in one process or several, and says of each that fails what led to it."""

import asyncio
import gc
import multiprocessing
import os
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from lab.lives import script, virtual
from lab.lives.life import Life, Tally, Wrong
from lab.lives.plants import Plant


@dataclass(slots=True)
class Result:
    """What became of lives."""

    lives: int = 0
    tally: Tally = field(default_factory=Tally)
    findings: dict[int, str] = field(default_factory=dict)
    """By the number of a life, what went wrong."""
    seconds: float = 0.0

    def add(self, part: "Result") -> None:
        """Count what another process has tried, too."""
        self.lives += part.lives
        self.findings |= part.findings
        self.tally.events.update(part.tally.events)
        self.tally.counts.update(part.tally.counts)


LONGEST_S = 200.0
"""After so long a life hangs."""
CLOSED_S = 10.0
MOST_FINDINGS = 20
_warm = False
"""Whether this process has had a life before: the first one loads what stays."""


def try_in_processes(numbers: Sequence[int], *, seed: int, real: bool, steps: int) -> Result:
    """Run the lives of these *numbers* on all CPUs.

    Each process runs one at a time, since a life looks at what its process has left.
    """
    whole, begun_s = Result(), time.monotonic()
    processes = min(len(os.sched_getaffinity(0)), len(numbers))
    one = partial(try_lives, seed, real=real, steps=steps)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(one, [[number] for number in numbers]):
            whole.add(part)
            if len(whole.findings) >= MOST_FINDINGS:
                break
    whole.seconds = time.monotonic() - begun_s
    return whole


def try_lives(
    seed: int,
    lives: Iterable[int],
    *,
    real: bool = False,
    steps: int = script.STEPS,
    most: int = 5,
    plant: Plant | None = None,
) -> Result:
    """Run *lives*, by their numbers; ends after *most* findings.

    Args:
        seed: with the number of a life it says what happens.
        lives: their numbers.
        real: with sockets, programs and the clock; else in virtual time.
        steps: of each.
        most: findings.
        plant: a mistake, to be found.
    """
    result = Result()
    for life in lives:
        if sentence := try_life(script.draw(seed, life, steps), result.tally, real=real, plant=plant):
            result.findings[life] = sentence
        result.lives += 1
        if len(result.findings) >= most:
            break
    return result


def try_life(drawn: script.Script, tally: Tally, *, real: bool = False, plant: Plant | None = None) -> str:
    """Run one life; what was wrong and what led to it, empty if nothing was. Arguments as for `try_lives`."""
    global _warm
    before, was_warm, _warm = _resources(), _warm, True
    log: list[str] = []
    try:
        _run(drawn, tally, log, real=real, plant=plant)
    except Exception as error:  # noqa: BLE001 (whatever it is, it must not be)
        step = error.step if isinstance(error, Wrong) else len(drawn.steps)
        sentence = str(error) if isinstance(error, Wrong) else repr(error)
        return "\n  ".join([sentence, *script.told(drawn, step), *log[:1], *log[-12:]])
    return _left(before) if was_warm else ""


def _left(before: Mapping[str, int]) -> str:
    """What this process has more of than *before*; gRPC closes in its own time."""
    gc.collect()
    until_s = time.monotonic() + CLOSED_S
    while left := {name: count for name, count in _resources().items() if count > before[name]}:
        if time.monotonic() > until_s:
            return f"left at the end: {left}, instead of {before}"
        time.sleep(0.01)
    return ""


def _run(drawn: script.Script, tally: Tally, log: list[str], *, real: bool, plant: Plant | None) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="l")))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        factory = None if real else virtual.VirtualLoop
        runner = stack.enter_context(asyncio.Runner(loop_factory=factory))
        loop = runner.get_loop()
        if isinstance(loop, virtual.VirtualLoop):
            virtual.install(patch, loop)
        if plant is not None:
            plant.put(patch)
        runner.run(_live(drawn, folder, tally, log))
    tally.counts["lives"] += 1


async def _live(drawn: script.Script, folder: Path, tally: Tally, log: list[str]) -> None:
    before = asyncio.all_tasks()
    life = Life(drawn, folder, tally)
    virtual.Program.follow = life.machine.follow
    try:
        async with asyncio.timeout(LONGEST_S):
            await life.live()
    except BaseException as error:
        log += [f"at {error!r}: {''.join(traceback.format_exception(error)[-12:])}"] * (not isinstance(error, Wrong))
        log += [f"log: {event} {keys}" for event, keys in life.log.lines]
        raise
    await asyncio.sleep(0.1)
    if left := asyncio.all_tasks() - before:
        raise Wrong(f"tasks are left at the end: {[task.get_name() for task in left]}", len(drawn.steps))


def _resources() -> dict[str, int]:
    return {"threads": threading.active_count(), "files": len([*Path("/proc/self/fd").iterdir()])}
