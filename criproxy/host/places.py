"""The place of a card in the machine, by its PCI function in sysfs."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from posixpath import split
from typing import NamedTuple

from criproxy.host.files import entries, ids_of, number_of
from criproxy.model.cpuset import CpuSet

PCI = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_CLASSES = {"/dev/dri": "drm", "/dev/accel": "accel"}
"""Directories of nodes whose class in sysfs has another name; other classes may have equal names of nodes."""


class Place(NamedTuple):
    """What is known about the place of a card: the last fields of `devices.classes.cards.Card`."""

    pci: str = ""
    bridges: tuple[str, ...] = ()
    numa_node: int = -1
    local_cpus: CpuSet = frozenset()


@dataclass(frozen=True, slots=True)
class Folder:
    """A device's directory in sysfs. Reading its files involves drivers, which may hang; listing them does not."""

    path: Path
    """Directory of the device itself, with links resolved."""
    near: Path
    """The nearest directory, itself or a parent, that has a NUMA node; itself if none has."""
    address: str = ""
    """Address of the PCI function, if known beforehand."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to read for `place`."""
        return tuple(self.near / name for name in ("numa_node", "local_cpulist", "uevent"))

    def place(self, texts: Sequence[str]) -> Place:
        """Return the place according to *texts*, the contents of `files`."""
        numa_node, local_cpus, uevent = texts
        names = [each.name for each in (self.path, *self.path.parents)]
        functions = [name for name in names if _ADDRESS.fullmatch(name) or _ROOT.fullmatch(name)]
        own = self.near.name
        pci = self.address or _slot(uevent) or (own if _ADDRESS.fullmatch(own) else "")
        node = number_of(numa_node)
        bridges = tuple(name for name in reversed(functions) if name != pci)
        return Place(pci, bridges, -1 if node is None else node, ids_of(local_cpus) or frozenset())


def folder_of(host_root: Path, address: str, nodes: Iterable[str]) -> Folder | None:
    """Return a card's directory in sysfs; None if there is none. Reads no file of a driver.

    Args:
        host_root: Root of /sys and /dev.
        address: Address of its PCI function; empty if only the nodes are known.
        nodes: Paths such as /dev/dri/card0.
    """
    found = next((folder.resolve() for folder in _folders(host_root, address, nodes) if folder.is_dir()), None)
    if found is None:
        return None
    near = next((each for each in (found, *found.parents) if (each / "numa_node").exists()), found)
    return Folder(found, near, address)


def _folders(host_root: Path, address: str, nodes: Iterable[str]) -> Iterator[Path]:
    """Yield the possible directories of the device in sysfs, the most reliable first."""
    if address:
        yield host_root / PCI / address
    for path in nodes:
        yield from _by_number(host_root, path)
        folder, name = split(path)
        of_folder = [_CLASSES[folder]] if folder in _CLASSES else []
        for kind in entries(host_root / "sys/class") if folder == "/dev" else of_folder:
            yield host_root / "sys/class" / kind / name / "device"


def _by_number(host_root: Path, path: str) -> Iterator[Path]:
    """Yield the directory by the numbers of the device node, which are unique."""
    with suppress(OSError):
        found = os.stat(host_root / path.lstrip("/"))  # noqa: PTH116 (the host's root may be another)
        if stat.S_ISCHR(found.st_mode):
            numbers = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
            yield host_root / "sys/dev/char" / numbers / "device"


def _slot(uevent: str) -> str:
    """Return the PCI address in the kernel's uevent; empty if there is none."""
    for line in uevent.splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _ADDRESS.fullmatch(value):
            return value
    return ""
