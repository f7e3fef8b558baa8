"""Prints the use of NVIDIA's cards, by NVML: a program that can be killed when its driver hangs.

Each line is a reading as docs/vgpu.md describes it, one in each period. If NVML does not work at all, the last line has
the ``problem``.
"""

import json
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from criproxy.deviceplugin.usage.nvml_cards import NvmlCards
from criproxy.process.children.tether import python

COMMAND: tuple[str, ...] = python("criproxy.deviceplugin.usage.nvml_usage")
SCAN_S = 30.0
"""The interval at which cards are listed anew: GPUs get lost, and MIG devices come and go."""
_NANOSECONDS_PER_MICROSECOND = 1000
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def watch(nvml: ModuleType, report: Callable[[Any], None], period_s: float, sleep: Callable[[float], None]) -> None:
    """Report readings until NVML fails.

    Raises:
        NVMLError: NVML does not work at all.
    """
    nvml.nvmlInit()
    cards = NvmlCards(nvml, lambda: time.time_ns() // _NANOSECONDS_PER_MICROSECOND)
    scan_s = next_s = time.monotonic()
    while True:
        if time.monotonic() >= scan_s:
            cards.scan()
            scan_s = time.monotonic() + SCAN_S
        taken_s = time.monotonic()  # before the reading, which may lack processes that start meanwhile
        report({"monotonic_s": round(taken_s, 3), **cards.read()})
        next_s = max(next_s + period_s, time.monotonic())
        sleep(max(next_s - time.monotonic(), 0))


def _print(reading: Any) -> None:  # noqa: ANN401
    sys.stdout.write(_encode(reading) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print readings, one in each period; the last argument is the period in seconds."""
    try:
        import pynvml

        watch(pynvml, _print, float(sys.argv[-1]), time.sleep)
    except BrokenPipeError:
        return 0
    except ImportError:
        _print({"problem": "the Python package nvidia-ml-py, which criproxy needs to query NVML, is not installed"})
    except Exception as error:  # noqa: BLE001 (a library of others, on a driver in any state)
        _print({"problem": f"NVML: {error}"})
    return 1


if __name__ == "__main__":
    sys.exit(main())
