"""Measures the device plugin with many ids: ``python -m lab.ids``; exits with status 1 above a limit."""

import sys

from lab.ids.measure import CARDS, GPUS, NPUS, Case, Cost, run
from lab.kubelet.device_endpoint import LARGEST_BYTES

MEMORY_MIB, START_S, LIST_MS = 128, 10.0, 500.0
"""Limits, far above what was measured: they find what grows with the square of the ids."""


def main() -> int:
    """Measure both cases, and print what was found."""
    found = [_is_too_much(case, run(case)) for case in (GPUS, NPUS)]
    return int(any(found))


def _is_too_much(case: Case, cost: Cost) -> bool:
    memory_mib, peak_mib, list_ms = cost.memory_kib / 1024, cost.peak_kib / 1024, cost.list_s * 1000
    print(f"{CARDS} cards of the class {case.kind} in {case.replicas} replicas: {case.ids} ids")
    print(f"  start         {cost.start_s:8.2f} s until the kubelet knows all ids (limit {START_S:g})")
    print(f"  memory        {memory_mib:8.1f} MiB, at most {peak_mib:.1f} (limit {MEMORY_MIB})")
    print(f"  ListAndWatch  {list_ms:8.1f} ms, {cost.list_bytes:,} bytes (limits {LIST_MS:g}, {LARGEST_BYTES:,})")
    over = (peak_mib > MEMORY_MIB, cost.start_s > START_S, list_ms > LIST_MS, cost.list_bytes > LARGEST_BYTES)
    return any(over)


if __name__ == "__main__":
    sys.exit(main())
