"""The accelerators of the machine: device nodes of each class, and what files of drivers say about them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from posixpath import split
from time import monotonic

from criproxy.devices.cards import Card, Stock
from criproxy.devices.classes import PLACEHOLDER, DeviceClass
from criproxy.discovery.cdi import FOLDERS, CdiSpecs
from criproxy.discovery.files import entries, read_text
from criproxy.discovery.patience import Hangs, Patience
from criproxy.discovery.places import Place, folder_of

NVIDIA_GPUS = "proc/driver/nvidia/gpus"
_UUID = re.compile(r"^GPU UUID:\s*(GPU-\S+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)\s*$", re.MULTILINE)


DRIVER_TIMEOUT_S = 0.5
"""How long all files of a driver may take together: the kernel has what they say at hand."""
CardLocation = tuple[str, Sequence[str]]
"""The PCI address of a card, empty where it is not known, and the paths of its nodes."""
_NO_CARDS: Mapping[Path, str] = {}


@dataclass(slots=True)
class DriverFiles:
    """Reads the files of drivers, which hang when a driver does; remembers what they said."""

    patience: Patience = field(default_factory=Patience)
    timeout_s: float = DRIVER_TIMEOUT_S
    cdi: CdiSpecs = field(default_factory=CdiSpecs)
    _said: dict[Path, str] = field(default_factory=dict)
    _set: dict[str, dict[str, bool]] = field(default_factory=dict)
    """What the CDI specifications of each class said."""

    def read(self, paths: Iterable[Path], cards: Mapping[Path, str] = _NO_CARDS) -> list[str]:
        """What they say, empty for one that says nothing; of one that hangs, what it said before.

        Args:
            paths: of the files.
            cards: of which card each is, where the path does not tell, for who reads that it hangs.
        """
        paths, until_s, begun = list(paths), monotonic() + self.timeout_s, dict[Path, Future[str | None]]()
        names = {path: f"{path} of {cards[path]}" if path in cards else str(path) for path in paths}
        for path, name in names.items():
            with suppress(Hangs):
                begun[path] = self.patience.begin(name, partial(read_text, path))
        for path, future in begun.items():
            with suppress(Hangs):
                left_s = max(0.0, until_s - monotonic())
                self._said[path] = self.patience.result(names[path], future, left_s) or ""
        return [self._said.get(path, "") for path in paths]

    def cdi_sets(self, kind: DeviceClass, host_root: Path) -> dict[str, bool]:
        """As `CdiSpecs.sets`; while a file hangs, what they said before."""
        work = partial(self.cdi.sets, kind, host_root)
        with suppress(Hangs):
            self._set[kind.name] = self.patience.ask(f"the CDI specifications of {kind.name}", work, self.timeout_s)
        return self._set.get(kind.name, {})

    def places(self, host_root: Path, cards: Mapping[str, CardLocation]) -> list[Place]:
        """Where *cards*, by a name for people, are: a card whose files hang is in no NUMA node that is known."""
        folders = [folder_of(host_root, address, nodes) for address, nodes in cards.values()]
        owners = {path: name for name, folder in zip(cards, folders, strict=True) if folder for path in folder.files}
        texts = dict(zip(owners, self.read(owners, owners), strict=True))
        return [
            folder.place([texts[path] for path in folder.files]) if folder else Place(pci=address)
            for folder, (address, _) in zip(folders, cards.values(), strict=True)
        ]


def find_cards(
    classes: Iterable[DeviceClass], host_root: Path = Path("/"), files: DriverFiles | None = None
) -> dict[str, Stock]:
    """What the machine whose /dev, /proc and /sys lie under *host_root* has, by the name of the class.

    Args:
        classes: those that matter.
        host_root: prefix of all paths.
        files: reads those of drivers; with one that is kept, cards keep their ids while a driver hangs.
    """
    files = files or DriverFiles()
    return {kind.name: _stock(kind, host_root, files) for kind in classes}


def names_seen(classes: Iterable[DeviceClass], host_root: Path) -> frozenset[str]:
    """What is there by name where nodes, drivers and CDI specifications are: while it is the same, so are the cards."""
    folders = {
        NVIDIA_GPUS,
        *(split(path)[0].lstrip("/") for kind in classes for path in (*kind.per_device, *kind.shared)),
    }
    names = {f"{folder}/{name}" for folder in folders for name in entries(host_root / folder)}
    for folder in FOLDERS:
        for name in entries(host_root / folder):
            with suppress(OSError):
                names.add(f"{folder}/{name} {(host_root / folder / name).stat().st_mtime_ns}")
    return frozenset(names)


def look_for_cards(classes: Iterable[DeviceClass], host_root: Path, timeout_s: float = 2.0) -> dict[str, Stock]:
    """The same for a command, which nothing may hold up for longer.

    Raises:
        Hangs: it took longer.
    """
    return Patience().ask("the machine's cards", partial(find_cards, tuple(classes), host_root), timeout_s)


def _stock(kind: DeviceClass, host_root: Path, files: DriverFiles) -> Stock:
    told = dict(_nvidia_ids(host_root, files)) if kind.pci_vendor == "0x10de" else {}
    found: dict[int, list[str]] = {number: [] for number in told}
    for number, path in _nodes(kind, host_root, files):
        found.setdefault(number, []).append(path)
    # As the driver lists them, which is how it counts them; without its list, by number.
    numbers = [*told, *sorted(found.keys() - told.keys())]
    wanted = {f"{kind.name} {number}": (told.get(number, ("", ""))[1], found[number]) for number in numbers}
    places = zip(numbers, files.places(host_root, wanted), strict=True)
    cards = tuple(_card(number, found[number], told.get(number, ("", ""))[0], place) for number, place in places)
    shared = tuple(path for pattern in kind.shared for path in _matching(host_root, pattern))
    return Stock(cards, shared, files.cdi_sets(kind, host_root))


def _card(number: int, nodes: list[str], id: str, place: Place) -> Card:
    return Card(number, tuple(nodes), id, place.pci, place.bridges, place.numa_node, place.local_cpus)


def _nodes(kind: DeviceClass, host_root: Path, files: DriverFiles) -> Iterator[tuple[int, str]]:
    """The nodes of a class's cards, with the number of each card."""
    found = [path for template in kind.per_device for path in _matching(host_root, PLACEHOLDER.sub("*", template))]
    others = _others(kind, host_root, files, found)
    for path in found:
        number = kind.card_number(path)
        if number is not None and path not in others:
            yield number, path


def _matching(host_root: Path, pattern: str) -> Iterator[str]:
    """The paths of nodes that match *pattern*, by name."""
    for path in sorted(host_root.glob(pattern.lstrip("/"))):
        yield f"/{path.relative_to(host_root)}"


def _others(kind: DeviceClass, host_root: Path, files: DriverFiles, paths: Iterable[str]) -> frozenset[str]:
    """Those of *paths* whose cards are of another vendor, as far as the kernel says whose they are."""
    if not kind.pci_vendor:
        return frozenset()
    owners = {
        file: path
        for path in paths
        for subsystem in ("drm", "accel")
        if (file := host_root / "sys/class" / subsystem / split(path)[1] / "device/vendor").exists()
    }
    vendors = files.read(owners, owners)
    return frozenset(
        path for path, vendor in zip(owners.values(), vendors, strict=True) if vendor and vendor != kind.pci_vendor
    )


def _nvidia_ids(host_root: Path, files: DriverFiles) -> Iterator[tuple[int, tuple[str, str]]]:
    """Minor number of each GPU, its UUID and PCI address; in the order of the latter, as NVML counts them."""
    addresses = entries(host_root / NVIDIA_GPUS)
    texts = files.read(host_root / NVIDIA_GPUS / address / "information" for address in addresses)
    for address, text in zip(addresses, texts, strict=True):
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            yield int(minor[1]), (uuid[1], address)
