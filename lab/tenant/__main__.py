"""`make tenant`: hostile pods on nodes with each policy, with devices on, among pods that behave.

    python -m lab.tenant --examples 20000 --seed 7 --json build/tenant.json

The examples are split among the policies. Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import multiprocessing
import os
import sys
from dataclasses import asdict

from lab import runs
from lab.tenant.rig import CHOICES
from lab.tenant.run import Result, try_asked


def main() -> int:
    """Do what the command line says."""
    parser = runs.parser("tenant", __doc__ or "")
    parser.add_argument("--examples", type=int, default=800, help="hostile pods (default: %(default)s)")
    parser.add_argument("choices", nargs="*", metavar="POLICY", help=f"default: all of {', '.join(CHOICES)}")
    options = parser.parse_args()
    if unknown := set(options.choices) - CHOICES.keys():
        parser.error(f"no such policy: {', '.join(sorted(unknown))}; there are {', '.join(CHOICES)}")
    chosen = options.choices or list(CHOICES)
    seed, each = options.seed, -(-options.examples // len(chosen))
    print(f"{each} hostile pods under each of {', '.join(chosen)}, seed {seed}", flush=True)
    results = list[Result]()
    with multiprocessing.get_context("spawn").Pool(min(len(os.sched_getaffinity(0)), len(chosen))) as pool:
        for result in pool.imap_unordered(try_asked, [(choice, each, seed) for choice in chosen]):
            results.append(result)
            found = "\n".join(result.findings) or "nothing found"
            counts = f"{result.tried} pods, {result.started} ran, {result.refusals} refused, {result.seconds:.0f} s"
            print(f"{result.choice}: {counts}: {found}", flush=True)
    runs.write(options.json, {"seed": seed, "policies": [asdict(result) for result in results]})
    return int(any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
