"""Measures what the watcher costs: ``python -m tests.rigs.usage``; exits with status 1 above the limit."""

import argparse
import sys

from tests.rigs.usage.measure import measure

CONTAINERS, SECONDS, LIMIT_PERCENT = 64, 60.0, 0.5


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.usage", description="CPU time of the watcher.")
    parser.add_argument("--containers", type=int, default=CONTAINERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    cost = measure(given.containers, given.seconds)
    print(f"{cost.containers} containers on 8 cards, {cost.readings} readings in {cost.seconds:.0f} s")
    print(f"watcher              {cost.watcher_percent:6.3f} % of a core")
    print(f"process of NVML      {cost.nvml_percent:6.3f} % of a core")
    print(f"both                 {cost.percent:6.3f} % of a core (limit {LIMIT_PERCENT} %)")
    return int(cost.percent > LIMIT_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
