"""`make lives`: random lives of a node with cards, with sockets, programs and the clock, or in virtual time.

    python -m lab.lives --lives 300 --seed 7 --json build/lives.json
    python -m lab.lives --seed 7 --life 42               # that one alone, as it was

The file is written anew as it goes on. Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from secrets import randbits

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # restarts are what it is about

from lab.lives.script import STEPS
from lab.lives.workers import Wanted, as_json, try_in_processes


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
    wanted = Wanted(seed=seed, real=not options.virtual, steps=options.steps)
    result = try_in_processes(wanted, numbers, max(1, options.processes), _Report(options.json, wanted, len(numbers)))
    for life, finding in sorted(result.findings.items()):
        print(f"life {life} (--seed {seed} --life {life}): {finding}")
    print(f"{result.lives} lives, {len(result.findings)} findings in {result.seconds:.0f} s: {options.json}")
    return int(bool(result.findings))


class _Report:
    """Writes down what has been tried so far: a run that is ended early was not for nothing."""

    EVERY = 20

    def __init__(self, path: Path, wanted: Wanted, lives: int) -> None:
        self._path, self._wanted, self._lives = path, wanted, lives
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, result: object) -> None:
        """Write it, and say now and then how far it is."""
        found = as_json(self._wanted, result)  # type: ignore[arg-type]  # a Result, which is imported later
        self._path.write_text(json.dumps(found, indent=1) + "\n")
        if found["lives"] % self.EVERY == 0 and found["lives"] < self._lives:
            print(f"  {found['lives']} lives, {len(found['findings'])} findings, {found['seconds']} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
