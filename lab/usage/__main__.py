"""Measures what the watcher costs: ``python -m lab.usage``; exits with status 1 above a limit."""

import argparse
import sys

from lab.figures import Figure, judge
from lab.usage import holds
from lab.usage.measure import measure

HOLD_MS = 2.0
"""What one callback of the daemon's event loop may take."""
PERIODS = 100


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m lab.usage", description="What the watcher costs.")
    parser.add_argument("--containers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long CPU time is measured")
    given = parser.parse_args()
    found = measure(given.containers, given.seconds)
    for name, longest_ms in holds.measure(given.containers, PERIODS).items():
        found.append(Figure(name, "event loop", "is held at most", longest_ms, "ms", HOLD_MS))
    return judge(f"What the watcher costs with {given.containers} containers on 8 cards", found)


if __name__ == "__main__":
    sys.exit(main())
