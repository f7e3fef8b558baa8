"""`make lives`: random lives of a node with cards, with sockets, programs and the clock, or in virtual time.

    python -m lab.lives --lives 300 --seed 7 --json build/lives.json
    python -m lab.lives --seed 7 --life 42               # that one alone, as it was

The file is written anew as it goes on. Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from secrets import randbits
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # restarts are what it is about

from lab.lives.run import Result, try_in_processes
from lab.lives.script import STEPS

_TOLD_EACH = 20


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m lab.lives", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lives", type=int, default=300, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="where the randomness begins (default: a new one, printed)")
    parser.add_argument("--life", type=int, help="only the one of this number")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each (default: %(default)s)")
    parser.add_argument("--virtual", action="store_true", help="in virtual time, without sockets and programs")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="at work at once")
    parser.add_argument("--json", type=Path, default=Path("build/lives.json"), help="where the results go")
    options = parser.parse_args()
    if options.lives < 1 or options.steps < 1:
        parser.error("--lives and --steps must be at least 1")
    seed = randbits(31) if options.seed is None else options.seed
    numbers = tuple(range(options.lives)) if options.life is None else (options.life,)
    way = "virtual time" if options.virtual else "real time"
    print(f"{len(numbers)} lives in {way}, seed {seed}", flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)

    def told(result: Result) -> None:
        """Write down what has been tried so far: a run that is ended early was not for nothing."""
        options.json.write_text(json.dumps(_as_json(seed, result, virtual=options.virtual), indent=1) + "\n")
        if result.lives % _TOLD_EACH == 0 and result.lives < len(numbers):
            print(f"  {result.lives} lives, {len(result.findings)} findings, {result.seconds:.1f} s", flush=True)

    processes, real = max(1, options.processes), not options.virtual
    result = try_in_processes(numbers, processes, told, seed=seed, real=real, steps=options.steps)
    for life, finding in sorted(result.findings.items()):
        print(f"life {life} (--seed {seed} --life {life}): {finding}")
    print(f"{result.lives} lives, {len(result.findings)} findings in {result.seconds:.0f} s: {options.json}")
    return int(bool(result.findings))


def _as_json(seed: int, result: Result, *, virtual: bool) -> dict[str, Any]:
    way = " --virtual" if virtual else ""
    return {
        "lives": result.lives,
        "seed": seed,
        "findings": {str(life): finding for life, finding in sorted(result.findings.items())},
        "seconds": round(result.seconds, 1),
        "command": f"python -m lab.lives --lives {result.lives} --seed {seed}{way}",
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
        "95 %": round(ordered[len(ordered) * 95 // 100], 3),
        "longest": round(ordered[-1], 3),
    }


if __name__ == "__main__":
    sys.exit(main())
