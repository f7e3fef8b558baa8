"""Measures what the watcher costs: ``python -m lab.usage``; exits with status 1 above a limit."""

import sys

from lab.figures import Figure, judge
from lab.usage import holds
from lab.usage.measure import measure

HOLD_MS = 2.0
"""What one callback of the daemon's event loop may take."""
CONTAINERS, PERIODS = 64, 100
SECONDS = 60.0
"""How long CPU time is measured."""


def main() -> int:
    """Measure, and print what was found."""
    found = measure(CONTAINERS, SECONDS)
    for name, longest_ms in holds.measure(CONTAINERS, PERIODS).items():
        found.append(Figure(name, "event loop", "is held at most", longest_ms, "ms", HOLD_MS))
    return judge(f"What the watcher costs with {CONTAINERS} containers on 8 cards", found)


if __name__ == "__main__":
    sys.exit(main())
