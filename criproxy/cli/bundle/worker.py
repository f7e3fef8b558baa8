"""``python -m criproxy.cli.bundle.worker PART SETTINGS``: collects one part of a bundle.

It prints each piece as soon as it has it, a line of JSON with the name of its file and its content. So a piece that
hangs takes nothing from those before it when this process is killed.
"""

import json
import sys
from collections.abc import Callable

from criproxy.cli.bundle import machine, own
from criproxy.cli.bundle.machine import Files, why
from criproxy.cli.bundle.settings import Settings

PARTS: dict[str, Callable[[Settings], Files]] = {
    "versions": machine.versions,
    "kernel": machine.kernel,
    "runtime": machine.runtime,
    "kubelet": machine.kubelet,
    "disks": machine.disks,
    "policy": own.policy_files,
    "state": own.state,
    "log": own.log,
    "units": own.units,
    "metrics": own.metrics,
}


def main(part: str, settings: str) -> int:
    """Print the pieces of *part*; return the exit status."""
    try:
        for piece in PARTS[part](Settings.read(settings)):
            print(json.dumps(piece), flush=True)  # noqa: T201 - what the parent reads
    except Exception as error:  # noqa: BLE001 (any error costs only this part, and is told)
        print(why(error), file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
