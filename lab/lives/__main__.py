"""`make lives`: random lives of a node with cards, with sockets, programs and the clock, or in virtual time.

    python -m lab.lives --lives 300 --seed 7 --json build/lives.json
    python -m lab.lives --seed 7 --life 42               # that one alone, as it was

Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import os
import sys

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # restarts are what it is about

from lab import runs
from lab.lives.run import try_in_processes
from lab.lives.script import STEPS


def main() -> int:
    """Do what the command line says."""
    parser = runs.parser("lives", __doc__ or "")
    parser.add_argument("--lives", type=int, default=300, help="how many (default: %(default)s)")
    parser.add_argument("--life", type=int, help="only the one of this number")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each (default: %(default)s)")
    parser.add_argument("--virtual", action="store_true", help="in virtual time, without sockets and programs")
    options = parser.parse_args()
    if options.lives < 1 or options.steps < 1:
        parser.error("--lives and --steps must be at least 1")
    seed = options.seed
    numbers = tuple(range(options.lives)) if options.life is None else (options.life,)
    print(f"{len(numbers)} lives in {'virtual' if options.virtual else 'real'} time, seed {seed}", flush=True)
    result = try_in_processes(numbers, seed=seed, real=not options.virtual, steps=options.steps)
    for life, finding in sorted(result.findings.items()):
        print(f"life {life} (--seed {seed} --life {life}): {finding}")
    print(f"{result.lives} lives, {len(result.findings)} findings in {result.seconds:.0f} s: {options.json}")
    report = {
        "lives": result.lives,
        "seed": seed,
        "findings": result.findings,
        "seconds": round(result.seconds, 1),
        "counts": result.tally.counts,
        "events": dict(result.tally.events.most_common()),
    }
    runs.write(options.json, report)
    return int(bool(result.findings))


if __name__ == "__main__":
    sys.exit(main())
