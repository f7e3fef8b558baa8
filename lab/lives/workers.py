"""Splits lives among processes: each of them runs one at a time, since a life looks at what its process has left."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.lives.run import Result, try_lives

MOST_FINDINGS = 20
_PERCENT_95 = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lives."""

    seed: int
    real: bool
    steps: int


def try_in_processes(wanted: Wanted, numbers: Sequence[int], processes: int, told: Callable[[Result], None]) -> Result:
    """Run the lives of these *numbers*; *told* hears of all so far, again and again."""
    whole, begun_s = Result(), time.monotonic()
    chunks = [(wanted, numbers[first::processes]) for first in range(min(processes, len(numbers)))]
    with multiprocessing.get_context("spawn").Pool(len(chunks)) as pool:
        queue = multiprocessing.get_context("spawn").Manager().Queue()
        waiting = [pool.apply_async(_try, (chunk, numbers, queue)) for chunk, numbers in chunks]
        ended = 0
        while ended < len(chunks):
            if (part := queue.get()) is None:
                ended += 1
                continue
            _add(whole, part)
            whole.seconds = time.monotonic() - begun_s
            told(whole)
        for each in waiting:
            each.get()
    return whole


def _try(wanted: Wanted, numbers: Sequence[int], queue: Any) -> None:  # noqa: ANN401 (a proxy of a Manager's)
    """Run some lives, and put each into *queue*, then None."""
    try:
        found = 0
        for place, number in enumerate(numbers):
            result = try_lives(wanted.seed, [number], real=wanted.real, steps=wanted.steps, first=place == 0)
            queue.put(result)
            found += len(result.findings)
            if found >= MOST_FINDINGS:
                break
    finally:
        queue.put(None)


def _add(whole: Result, part: Result) -> None:
    whole.lives += part.lives
    whole.findings |= part.findings
    whole.tally.events.update(part.tally.events)
    whole.tally.counts.update(part.tally.counts)
    for what, took_s in part.tally.settled_s.items():
        whole.tally.settled_s.setdefault(what, []).extend(took_s)


def as_json(wanted: Wanted, result: Result) -> dict[str, Any]:
    """For the report."""
    way = "" if wanted.real else " --virtual"
    return {
        "lives": result.lives,
        "seed": wanted.seed,
        "findings": {str(life): finding for life, finding in sorted(result.findings.items())},
        "seconds": round(result.seconds, 1),
        "command": f"python -m lab.lives --lives {result.lives} --seed {wanted.seed}{way}",
        "counts": dict(result.tally.counts),
        "events": dict(result.tally.events.most_common()),
        "settled_s": {what: _figures(took_s) for what, took_s in sorted(result.tally.settled_s.items())},
    }


def _figures(took_s: Sequence[float]) -> dict[str, float]:
    """How long the kubelet did not know, by what had happened."""
    ordered = sorted(took_s)
    return {
        "count": len(ordered),
        "median": round(statistics.median(ordered), 3),
        "95 %": round(ordered[len(ordered) * _PERCENT_95 // 100], 3),
        "longest": round(ordered[-1], 3),
    }
