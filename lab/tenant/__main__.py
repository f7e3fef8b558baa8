"""`make tenant`: hostile pods on nodes with each policy, with devices on, among pods that behave.

    python -m lab.tenant --examples 20000 --seed 7 --json build/tenant.json

The examples are split among the policies. Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import argparse
import json
import multiprocessing
import os
import sys
from dataclasses import asdict
from pathlib import Path
from secrets import randbits

from lab.tenant.rig import CHOICES
from lab.tenant.run import Result, try_asked


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m lab.tenant", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--examples", type=int, default=800, help="hostile pods (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="where the randomness begins (default: a new one, printed)")
    parser.add_argument("--json", type=Path, default=Path("build/tenant.json"), help="where the results go")
    parser.add_argument("choices", nargs="*", metavar="POLICY", help=f"default: all of {', '.join(CHOICES)}")
    options = parser.parse_args()
    if unknown := set(options.choices) - CHOICES.keys():
        parser.error(f"no such policy: {', '.join(sorted(unknown))}; there are {', '.join(CHOICES)}")
    chosen = options.choices or list(CHOICES)
    seed = randbits(31) if options.seed is None else options.seed
    each = -(-options.examples // len(chosen))
    print(f"{each} hostile pods under each of {', '.join(chosen)}, seed {seed}", flush=True)
    results = list[Result]()
    with multiprocessing.get_context("spawn").Pool(min(len(os.sched_getaffinity(0)), len(chosen))) as pool:
        for result in pool.imap_unordered(try_asked, [(choice, each, seed) for choice in chosen]):
            results.append(result)
            found = "\n".join(result.findings) or "nothing found"
            counts = f"{result.tried} pods, {result.started} ran, {result.refusals} refused, {result.seconds:.0f} s"
            print(f"{result.choice}: {counts}: {found}", flush=True)
    report = {"seed": seed, "policies": [asdict(result) for result in results]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
