"""Block I/O of containers: limits and weights of devices, with cgroup v1 and v2.

Formats: Documentation/admin-guide/cgroup-v1/blkio-controller.rst and cgroup-v2.rst of the kernel. A file has a line for
each device with a limit, and takes one device with each write.
"""

import errno
import glob
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from criproxy.controls.journal import Journal
from criproxy.controls.machine.kernel import write
from criproxy.controls.parts import Part
from criproxy.errors import reason_of
from criproxy.host.cgroup import group_at
from criproxy.host.files import entries, read_text
from criproxy.model.controls import BlockIo, ContainerControls, Desired, Throttle

WEIGHT = "weight"
EVERY_DEVICE = ""
"""In place of a device: the weight of those that have none of their own."""
V1_FILES = {
    "rbps": "blkio.throttle.read_bps_device",
    "wbps": "blkio.throttle.write_bps_device",
    "riops": "blkio.throttle.read_iops_device",
    "wiops": "blkio.throttle.write_iops_device",
    WEIGHT: "blkio.bfq.weight_device",
}
V1_WEIGHT = "blkio.bfq.weight"
V2_LIMITS, V2_WEIGHT = "io.max", "io.bfq.weight"
USUAL_WEIGHT = 100

Limits = Mapping[tuple[str, str], int]
"""(Device as MAJOR:MINOR or `EVERY_DEVICE`, key of `V1_FILES`) → value, which is above 0."""


class BlockIoLimits(Part):
    """Limits the block I/O of containers."""

    name, field = "block I/O", "block_io"

    def __init__(self, host_root: Path, journal: Journal) -> None:
        self._root, self._journal = host_root, journal
        self._devices = Devices(host_root)
        self._set: dict[str, Limits] = {}
        """Id → what was set last, by this run."""

    def configure(self, desired: Desired) -> list[str]:
        """Learn which devices there are now."""
        self._devices.refresh()
        return []

    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Set the limits; those that only *before* has go."""
        if not controls.block_io:
            return self.forget(id, before) if before else []
        self._devices.refresh()
        work = _Work(self._folder(controls.cgroup), self._devices.limits(controls.block_io))
        replaced = self._devices.limits(before.block_io) if before and before.block_io else {}
        return [*self._set_limits(id, work, replaced), *self._devices.missing(controls.block_io)]

    def forget(self, id: str, before: ContainerControls) -> list[str]:
        """Remove what *before* has set."""
        self._set.pop(id, None)
        former = self._former(id)
        if not before.block_io or former is None:
            return []
        work = _Work(self._folder(before.cgroup), {})
        work.set(self._devices.limits(before.block_io), former)
        return work.troubles

    def look(self, id: str, controls: ContainerControls) -> list[str]:
        """Set the limits of devices that have appeared, and those that others have changed."""
        if not controls.block_io:
            return []
        work = _Work(self._folder(controls.cgroup), self._devices.limits(controls.block_io))
        if work.exists:
            self.drift += sum(work.found.get(place) != value for place, value in self._set.get(id, {}).items())
        return [*self._set_limits(id, work, {}), *self._devices.missing(controls.block_io)]

    def _set_limits(self, id: str, work: "_Work", replaced: Limits) -> list[str]:
        """Set what *work* wants instead of what is *replaced*; before the first time, store what there was."""
        if not work.exists:
            return []
        if (former := self._former(id)) is None:
            former = work.found
            values = [[device, key, value] for (device, key), value in former.items()]
            self._journal.keep_former(id, self.field, values)
        self._set[id] = work.set(replaced, former)
        return work.troubles

    def _former(self, id: str) -> Limits | None:
        """Return what a container had before; None: nothing was set."""
        values = self._journal.former_of(id, self.field)
        return None if values is None else {(device, key): value for device, key, value in values}

    def machine(self) -> Mapping[str, Any]:
        """Return the devices that can have weights: those with the scheduler bfq."""
        block = self._root / "sys/block"
        schedulers = {name: read_text(block / name / "queue/scheduler") or "" for name in entries(block)}
        return {"bfq": [name for name, text in schedulers.items() if "[bfq]" in text]}

    def _folder(self, cgroup: str) -> "_Folder":
        group = group_at(self._root, cgroup)
        return _Folder(group.folder("blkio"), unified=group.unified) if group else _Folder("", unified=True)


class Devices:
    """The block devices of a machine with its files below *host_root*."""

    def __init__(self, host_root: Path) -> None:
        self._root = host_root
        self._there: list[str] = []
        self._found: dict[str, frozenset[str]] = {}
        """Pattern → devices as MAJOR:MINOR."""

    def refresh(self) -> None:
        """Look up paths again if devices have come or gone."""
        there = entries(self._root / "sys/dev/block")
        if there != self._there:
            self._there, self._found = there, {}

    def limits(self, block_io: BlockIo) -> Limits:
        """Return what a class sets on the devices that there are; of several values for one, the last one counts."""
        found: dict[tuple[str, str], int] = {}
        if block_io.weight is not None:
            found[EVERY_DEVICE, WEIGHT] = block_io.weight
        for throttle in block_io.throttles:
            for device in self._of(throttle):
                found |= {(device, key): value for key, value in _values(throttle)}
        return found

    def missing(self, block_io: BlockIo) -> list[str]:
        """Return a sentence for each limit that is one of no device."""
        none = [each for each in block_io.throttles if not self._of(each)]
        return [f"there is no disk {' or '.join(each.devices)}; partitions have no limits" for each in none]

    def _of(self, throttle: Throttle) -> frozenset[str]:
        return frozenset().union(*map(self._matches, throttle.devices))

    def _matches(self, pattern: str) -> frozenset[str]:
        if pattern not in self._found:
            self._found[pattern] = frozenset(self._disks(pattern))
        return self._found[pattern]

    def _disks(self, pattern: str) -> Iterator[str]:
        for path in glob.iglob(str(self._root / pattern.lstrip("/"))):  # noqa: PTH207 (it has no absolute patterns)
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue  # it has gone
            number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
            # The kernel limits whole disks only.
            if stat.S_ISBLK(status.st_mode) and not (self._root / "sys/dev/block" / number / "partition").exists():
                yield number


def _values(throttle: Throttle) -> Iterator[tuple[str, int]]:
    values = (throttle.read_bps, throttle.write_bps, throttle.read_iops, throttle.write_iops, throttle.weight)
    for key, value in zip(V1_FILES, values, strict=True):
        if value is not None:
            yield key, value


class _Folder:
    """The files of one cgroup."""

    def __init__(self, path: str, *, unified: bool) -> None:
        self.path, self._unified = path, unified

    def read(self) -> dict[tuple[str, str], int]:
        """Return what is set; raises FileNotFoundError if there is no such cgroup."""
        os.stat(self.path)  # noqa: PTH116
        found: dict[tuple[str, str], int] = {}
        for name in (V2_LIMITS, V2_WEIGHT) if self._unified else (*V1_FILES.values(), V1_WEIGHT):
            for line in (read_text(f"{self.path}/{name}") or "").splitlines():  # if it cannot be read, writing it tells
                found |= _parsed(name, line.split())
        return found

    def write(self, device: str, key: str, value: int | None) -> None:
        """Set one value; None: none. Raises OSError."""
        name, text = self._written(device, key, value)
        write(f"{self.path}/{name}", text)

    def file(self, device: str, key: str) -> str:
        """Return the path of the file of a value."""
        return f"{self.path}/{self._written(device, key, None)[0]}"

    def _written(self, device: str, key: str, value: int | None) -> tuple[str, str]:
        if key == WEIGHT and device == EVERY_DEVICE:
            number = str(USUAL_WEIGHT if value is None else value)
            return (V2_WEIGHT, f"default {number}") if self._unified else (V1_WEIGHT, number)
        if key == WEIGHT:
            return V2_WEIGHT if self._unified else V1_FILES[key], f"{device} {'default' if value is None else value}"
        if self._unified:
            return V2_LIMITS, f"{device} {key}={'max' if value is None else value}"
        return V1_FILES[key], f"{device} {value or 0}"


def _parsed(name: str, words: list[str]) -> dict[tuple[str, str], int]:
    """Return the values in a line of a file, without those that limit nothing."""
    device, *values = words if len(words) > 1 else ["default", *words]
    if device == "default":
        device = EVERY_DEVICE
    key = next((key for key, file in V1_FILES.items() if file == name), WEIGHT)
    pairs = [word.split("=", 1) if "=" in word else [key, word] for word in values]
    return {(device, key): int(value) for key, value in pairs if value.isdigit() and key in V1_FILES}


class _Work:
    """One pass over the files of a container."""

    def __init__(self, folder: _Folder, wanted: Limits) -> None:
        self._folder, self._wanted = folder, wanted
        self.troubles: list[str] = []
        self.exists = True
        self.found: Limits = {}
        try:
            self.found = folder.read()
        except OSError:
            self.exists = False  # it has ended, or has not begun

    def set(self, old: Limits, original: Limits) -> Limits:
        """Write what differs, and return what is set; what only *old* sets goes, unless others have changed it."""
        if not self.exists:
            return {}
        gone = [place for place, value in old.items() if place not in self._wanted and self.found.get(place) == value]
        values: dict[tuple[str, str], int | None] = {place: original.get(place) for place in gone}
        done = dict[tuple[str, str], int]()
        for place, value in sorted((values | {**self._wanted}).items()):
            try:
                if self.found.get(place) != value:
                    self._folder.write(*place, value)
            except OSError as error:
                self._failed(*place, error)
            else:
                done |= {place: value} if place in self._wanted and value is not None else {}
        return done

    def _failed(self, device: str, key: str, error: OSError) -> None:
        if error.errno in (errno.ENODEV, errno.ENXIO) or not os.path.exists(self._folder.path):  # noqa: PTH110
            return  # the device, or the container, has gone
        file = self._folder.file(device, key)
        if error.errno in (errno.EOPNOTSUPP, errno.ENOENT, errno.EACCES) and key == WEIGHT:
            why = "weights need the I/O scheduler bfq: echo bfq >/sys/block/NAME/queue/scheduler"
        else:
            why = reason_of(error)
        self.troubles.append(f"{file} of {device or 'all devices'}: {why}")
