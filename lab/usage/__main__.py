"""Measures what the watcher costs: ``python -m lab.usage``; exits with status 1 above a limit.

``python -m lab.usage delays`` measures instead what its reports do to the calls of the kubelet.
"""

import argparse
import sys
from collections.abc import Iterator

from lab.figures import Figure, judge
from lab.usage import delays, holds
from lab.usage.measure import measure

CONTAINERS, SECONDS = 64, 60.0
HOLD_MS = 2.0
"""What one callback of the daemon's event loop may take."""
PERIODS = 100
MEDIAN_RATIO = 1.1
"""A call with reports beside it may take so much longer than without; the rest is noise of the machine."""


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m lab.usage", description="What the watcher costs.")
    parser.add_argument("what", nargs="?", choices=("cpu", "delays"), default="cpu")
    parser.add_argument("--containers", type=int, default=CONTAINERS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="cpu: so long; delays: half so long each call")
    parser.add_argument("--period", type=float, default=1.0, help="delays: seconds between two reports")
    given = parser.parse_args()
    found = measure(given.containers, given.seconds) if given.what == "cpu" else list(_delays(given))
    return judge(f"What the watcher costs with {given.containers} containers on 8 cards", found)


def _delays(given: argparse.Namespace) -> Iterator[Figure]:
    for name, longest_ms in holds.measure(given.containers, PERIODS).items():
        yield Figure(name, "event loop", "is held at most", longest_ms, "ms", HOLD_MS)
    rounds = max(round(given.seconds / 2), 1)
    found = delays.measure(delays.Effort(containers=given.containers, rounds=rounds, period_s=given.period))
    yield Figure(f"one of {found.reports} periods", "daemon", "CPU", found.report_cpu_ms, "ms")
    for method, result in found.calls.items():
        for way, series in result.items():
            # What is above the limit is no noise of the machine any more.
            limit = MEDIAN_RATIO * result[delays.WITHOUT].median_us if way == delays.WITH else None
            yield Figure(method, f"{way} reports", "median", series.median_us, "µs", limit)
            yield Figure(method, f"{way} reports", "p99", series.p99_us, "µs")


if __name__ == "__main__":
    sys.exit(main())
