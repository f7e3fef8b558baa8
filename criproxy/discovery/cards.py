"""Which accelerators the machine has: device nodes of each class, and what drivers tell without being asked."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from posixpath import split

from criproxy.devices.cards import Card, Stock
from criproxy.devices.classes import PLACEHOLDER, DeviceClass
from criproxy.discovery.files import entries, read_text
from criproxy.discovery.places import place_of

NVIDIA_GPUS = "proc/driver/nvidia/gpus"
_UUID = re.compile(r"^GPU UUID:\s*(GPU-\S+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)\s*$", re.MULTILINE)


def find_cards(classes: Iterable[DeviceClass], host_root: Path = Path("/")) -> dict[str, Stock]:
    """What the machine whose /dev, /proc and /sys lie under *host_root* has, by the name of the class."""
    return {kind.name: _stock(kind, host_root) for kind in classes}


def _stock(kind: DeviceClass, host_root: Path) -> Stock:
    told = dict(_nvidia_ids(host_root)) if kind.pci_vendor == "0x10de" else {}
    found: dict[int, list[str]] = {number: [] for number in told}
    for template in kind.per_device:
        for path in _matching(host_root, PLACEHOLDER.sub("*", template)):
            number = kind.card_number(path)
            if number is not None and _is_vendors(kind, host_root, path):
                found.setdefault(number, []).append(path)
    # As the driver lists them, which is how it counts them; without its list, by number.
    numbers = [*told, *sorted(found.keys() - told.keys())]
    cards = tuple(_card(host_root, number, found[number], *told.get(number, ("", ""))) for number in numbers)
    shared = tuple(path for pattern in kind.shared for path in _matching(host_root, pattern))
    return Stock(cards, shared)


def _card(host_root: Path, number: int, nodes: list[str], id: str, address: str) -> Card:
    place = place_of(host_root, address, nodes)
    return Card(number, tuple(nodes), id, place.pci, place.bridges, place.numa_node, place.local_cpus)


def _matching(host_root: Path, pattern: str) -> Iterator[str]:
    """The paths of nodes that match *pattern*, by name."""
    for path in sorted(host_root.glob(pattern.lstrip("/"))):
        yield f"/{path.relative_to(host_root)}"


def _is_vendors(kind: DeviceClass, host_root: Path, path: str) -> bool:
    """Whether a node is of the class's vendor, or the kernel does not say whose it is."""
    name = split(path)[1]
    if not kind.pci_vendor:
        return True
    for subsystem in ("drm", "accel"):
        vendor = read_text(host_root / "sys/class" / subsystem / name / "device/vendor")
        if vendor is not None:
            return vendor == kind.pci_vendor
    return True


def _nvidia_ids(host_root: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Minor number of each GPU, its UUID and PCI address; in the order of the latter, as NVML counts them."""
    for address in entries(host_root / NVIDIA_GPUS):
        text = read_text(host_root / NVIDIA_GPUS / address / "information") or ""
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            yield int(minor[1]), (uuid[1], address)
