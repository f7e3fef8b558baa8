"""`make properties`: every registered policy, the external example included, on random machines and lives.

    python -m lab.properties --examples 20000 --seed 7 --json build/properties.json

The file is written anew as it goes on. Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from criproxy.config.settings import names
from lab import runs
from lab.properties.run import Result, try_in_processes
from lab.provenance import commit
from tests.placement.policies.example import install


def main() -> int:
    """Do what the command line says."""
    parser = runs.parser("properties", __doc__ or "")
    parser.add_argument("--examples", type=int, default=500, help="machines and lives (default: %(default)s)")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="at work at once (default: %(default)s)"
    )
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="default: all that are registered")
    options = parser.parse_args()
    if options.examples < 1:
        parser.error("--examples must be at least 1")
    with tempfile.TemporaryDirectory(prefix="criproxy-properties-") as folder:
        sys.path.insert(0, str(install(Path(folder))))
        unknown = set(options.policies) - set(names())
        if unknown:
            parser.error(f"no such policy: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
        chosen, processes = options.policies or names(), max(1, options.processes)
        return _run(chosen, options.examples, options.seed, processes, options.json)


def _run(policies: list[str], examples: int, seed: int, processes: int, path: Path) -> int:
    clock = time.monotonic()
    print(f"{examples} machines and lives for each of {', '.join(policies)}, seed {seed}", flush=True)

    def told(done: int, results: list[Result]) -> None:
        """Write down what has been tried so far: a run of hours that is ended early was not for nothing."""
        report = {
            "seed": seed,
            "examples": examples,
            "tried": done,
            "policies": [{"policy": each.policy, "finding": each.finding, **each.tally.as_json()} for each in results],
            "findings": _findings(results),
            "seconds": round(time.monotonic() - clock, 1),
            "commit": commit(),
            "command": f"make properties EXAMPLES={examples} SEED={seed}",
        }
        runs.write(path, report)

    results = try_in_processes(policies, examples, seed, processes, told)
    for result in results:
        events, owners = sum(result.tally.events.values()), result.tally.lives_with_owners
        print(f"{result.policy}: {events} events, {owners} lives with owners, {result.finding or 'nothing found'}")
    findings = _findings(results)
    print(f"{len(findings)} findings in {time.monotonic() - clock:.1f} s: {path}")
    return 1 if findings else 0


def _findings(results: list[Result]) -> list[str]:
    return [f"{result.policy}: {result.finding}" for result in results if result.finding]


if __name__ == "__main__":
    sys.exit(main())
