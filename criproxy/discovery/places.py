"""Where a card is in the machine, by its PCI function in sysfs."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from posixpath import split

from criproxy.discovery.files import entries, read_ids, read_number, read_text
from criproxy.errors import CriproxyError
from criproxy.model.cpuset import CpuSet

PCI = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_CLASSES = {"/dev/dri": "drm", "/dev/accel": "accel"}
"""Folders of nodes whose class in sysfs has another name, and shares names of nodes with others."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of where a card is; see `devices.cards.Card`."""

    pci: str = ""
    bridges: tuple[str, ...] = ()
    numa_node: int = -1
    local_cpus: CpuSet = frozenset()


def place_of(host_root: Path, address: str, nodes: Iterable[str]) -> Place:
    """Where the card is that has a PCI *address*, or one of these device *nodes*.

    Args:
        host_root: above /sys and /dev.
        address: empty where only the nodes are known.
        nodes: paths such as /dev/dri/card0.
    """
    for folder in _folders(host_root, address, nodes):
        if folder.is_dir():
            return _read(folder.resolve(), address)
    return Place(pci=address)


def _folders(host_root: Path, address: str, nodes: Iterable[str]) -> Iterator[Path]:
    """The folders in sysfs of the device, the surest first."""
    if address:
        yield host_root / PCI / address
    for path in nodes:
        yield from _by_number(host_root, path)
        folder, name = split(path)
        for kind in [_CLASSES[folder]] if folder in _CLASSES else entries(host_root / "sys/class"):
            if folder in _CLASSES or folder == "/dev":
                yield host_root / "sys/class" / kind / name / "device"


def _by_number(host_root: Path, path: str) -> Iterator[Path]:
    """By the numbers of the device node, which no two have."""
    with suppress(OSError):
        found = os.stat(host_root / path.lstrip("/"))  # noqa: PTH116 (the host's root may be another)
        if stat.S_ISCHR(found.st_mode):
            numbers = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
            yield host_root / "sys/dev/char" / numbers / "device"


def _read(folder: Path, address: str) -> Place:
    """What *folder* says, or the nearest one around it that says where it is."""
    path = [folder, *folder.parents]
    place = next((each for each in path if (each / "numa_node").exists()), folder)
    names = [each.name for each in path]
    bridges = [name for name in names if _ADDRESS.fullmatch(name) or _ROOT.fullmatch(name)]
    pci = address or _slot(place) or (place.name if _ADDRESS.fullmatch(place.name) else "")
    cpus = None
    with suppress(CriproxyError):
        cpus = read_ids(place / "local_cpulist")
    node = read_number(place / "numa_node")
    leading = tuple(name for name in reversed(bridges) if name != pci)
    return Place(pci, leading, -1 if node is None else node, cpus or frozenset())


def _slot(folder: Path) -> str:
    """The PCI address in the kernel's uevent; empty where it has none."""
    for line in (read_text(folder / "uevent") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _ADDRESS.fullmatch(value):
            return value
    return ""
