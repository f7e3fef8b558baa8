"""CPU burst with cgroup v1: how much unused quota of earlier periods a container may use up in one.

The kernel takes no burst above the quota, and, once there is a burst, no quota below it: a runtime that is to lower the
quota fails then. So whoever lowers a quota lets this service lower the burst before; a burst for a quota that is still
higher is taken at once, one for a quota that is still lower as far as that allows, and the rest with the next call.

With cgroup v2, the runtime writes ``cpu.max.burst``.
"""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from criproxy.controls.journal import Journal
from criproxy.controls.machine.kernel import read, write
from criproxy.controls.parts import Part
from criproxy.errors import reason_of
from criproxy.host.cgroup import group_at
from criproxy.host.files import number_of
from criproxy.model.controls import ContainerControls

BURST, QUOTA = "cpu.cfs_burst_us", "cpu.cfs_quota_us"


class CpuBurst(Part):
    """Sets the CPU burst of containers."""

    name, field = "CPU burst", "burst_us"

    def __init__(self, host_root: Path, journal: Journal) -> None:
        self._root, self._journal = host_root, journal
        self._set: dict[str, int] = {}
        """Id → what was set last, by this run."""

    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Set the burst, or what was there before it."""
        if controls.burst_us is None:
            return self.forget(id, before) if before else []
        return self._write(id, controls.cgroup, controls.burst_us)

    def forget(self, id: str, before: ContainerControls) -> list[str]:
        """Put back what was there before."""
        former_us = self._journal.former_of(id, self.field)
        if before.burst_us is None or former_us is None:
            return []
        said = self._write(id, before.cgroup, former_us)
        self._set.pop(id, None)
        return said

    def look(self, id: str, controls: ContainerControls) -> list[str]:
        """Repair what others have changed, and follow the quota."""
        if controls.burst_us is None:
            return []
        return self._write(id, controls.cgroup, controls.burst_us)

    def machine(self) -> Mapping[str, Any]:
        """Return whether this service can set it."""
        return {"cpuBurst": (self._root / "sys/fs/cgroup/cpu" / BURST).exists()}

    def _write(self, id: str, cgroup: str, burst_us: int) -> list[str]:
        """Set *burst_us*; before the first time, store what there was, which may fail as `Journal.keep_former` does."""
        group = group_at(self._root, cgroup)
        if not group or group.unified:
            return []
        folder = group.folder("cpu")
        path = f"{folder}/{BURST}"
        try:
            now, quota_us = number_of(read(path)), number_of(read(f"{folder}/{QUOTA}"))
            wanted = min(burst_us, max(quota_us or 0, 0))
            if self._journal.former_of(id, self.field) is None:
                self._journal.keep_former(id, self.field, now or 0)
            if now != wanted:
                self.drift += now != self._set.get(id, now)
                write(path, str(wanted))
            self._set[id] = wanted
        except OSError as error:
            if error.errno == errno.ENODEV or not Path(folder).exists():
                return []  # the container has ended, or has not begun
            return [f"{path}: {reason_of(error)}"]
        return []
