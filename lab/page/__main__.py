"""Measures how fast the page is: ``python -m lab.page``; exits with status 1 above a limit."""

import argparse
import sys

from lab.page.measure import measure

CONTAINERS = 500
FIRST_PAINT_MS, EVENT_MS = 1000.0, 1000.0


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m lab.page", description="How fast the page is.")
    parser.add_argument("--containers", type=int, default=CONTAINERS)
    parser.add_argument("--loads", type=int, default=10, help="how often the page is opened")
    parser.add_argument("--events", type=int, default=20, help="containers that are created while it is open")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which nothing happens")
    given = parser.parse_args()
    found = measure(given.containers, given.loads, given.events, given.idle)
    print("\n".join(found.lines()))
    print(f"limits: node drawn {FIRST_PAINT_MS:.0f} ms, event seen {EVENT_MS:.0f} ms")
    return int(max(found.drawn_ms) > FIRST_PAINT_MS or max(found.event_ms) > EVENT_MS)


if __name__ == "__main__":
    sys.exit(main())
