"""Measures what the watcher costs: ``python -m lab.usage``; exits with status 1 above a limit.

``python -m lab.usage delays`` measures instead what its reports do to the calls of the kubelet.
"""

import argparse
import sys

from lab.usage import delays, holds
from lab.usage.measure import measure

CONTAINERS, SECONDS, LIMIT_PERCENT = 64, 60.0, 0.5
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
    return _cpu(given) if given.what == "cpu" else _delays(given)


def _cpu(given: argparse.Namespace) -> int:
    cost = measure(given.containers, given.seconds)
    print(f"{cost.containers} containers on 8 cards, {cost.readings} readings in {cost.seconds:.0f} s")
    print(f"watcher              {cost.watcher_percent:6.3f} % of a core")
    print(f"process of NVML      {cost.nvml_percent:6.3f} % of a core")
    print(f"both                 {cost.percent:6.3f} % of a core (limit {LIMIT_PERCENT} %)")
    return int(cost.percent > LIMIT_PERCENT)


def _delays(given: argparse.Namespace) -> int:
    rounds = max(round(given.seconds / 2), 1)
    held_ms = holds.measure(given.containers, PERIODS)
    effort = delays.Effort(containers=given.containers, rounds=rounds, period_s=given.period)
    found = delays.measure(effort)
    print(f"{given.containers} containers on 8 cards, {found.reports} reports, one each {given.period:g} s")
    for name, longest_ms in held_ms.items():
        print(f"{name:18}holds the loop for at most {longest_ms:5.2f} ms (limit {HOLD_MS:g} ms)")
    print(f"{'all of a period':18}takes the daemon {found.report_cpu_ms:15.2f} ms of CPU time")
    for method, result in found.calls.items():
        for way, series in result.items():
            times = f"median {series.median_us:7.0f} µs, p99 {series.p99_us:7.0f} µs, {series.calls} calls"
            print(f"{method:18}{way:8}{times}")
        ratios = f"median {found.ratio(method, 'median_us'):.3f}, p99 {found.ratio(method, 'p99_us'):.3f}"
        print(f"{method:18}ratio   {ratios} (limit of the median {MEDIAN_RATIO})")
    slow = any(found.ratio(method, "median_us") > MEDIAN_RATIO for method in found.calls)
    return int(slow or max(held_ms.values()) > HOLD_MS)


if __name__ == "__main__":
    sys.exit(main())
