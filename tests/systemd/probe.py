"""What the rights of a unit allow towards processes of others, as JSON: ``python -m tests.systemd.probe PID …``.

It runs in the place of the device plugin, with all that the unit says of rights.
"""

import json
import os
import sys
from typing import Any

from criproxy.deviceplugin.usage.processes import Processes
from criproxy.deviceplugin.usage.quota_incidents import may_kill


def rights(pid: int) -> dict[str, Any]:
    """What may be done with a process."""
    try:
        os.kill(pid, 0)  # no signal, but asks whether one could be sent
        signals = True
    except PermissionError:
        signals = False
    with open(f"/proc/{pid}/cgroup") as cgroup:  # noqa: PTH123 (as a shell would)
        groups = cgroup.read()
    os.close(os.pidfd_open(pid))
    return {"start": Processes().start_ticks(pid) > 0, "cgroup": "/" in groups, "signals": signals}


if __name__ == "__main__":
    print(json.dumps({"may_kill": may_kill(), "processes": [rights(int(pid)) for pid in sys.argv[1:]]}))
