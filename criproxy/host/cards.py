"""The accelerators of the machine: device nodes of each class, and the properties in files of drivers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from posixpath import split
from time import monotonic
from typing import Any

from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import PLACEHOLDER, DeviceClass
from criproxy.host.files import entries, read_text
from criproxy.host.patience import Hangs, Patience
from criproxy.host.places import Place, folder_of

FOLDERS = ("etc/cdi", "var/run/cdi")
"""In the order in which runtimes read them: of two devices with one name, the later one counts."""
LARGEST_BYTES = 8 << 20
Edits = Mapping[str, frozenset[str]]
"""The variables that a device sets, by its name ``vendor/class=device``."""
NVIDIA_GPUS = "proc/driver/nvidia/gpus"
_UUID = re.compile(r"^GPU UUID:\s*(GPU-\S+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)\s*$", re.MULTILINE)
DRIVER_TIMEOUT_S = 0.5
"""Timeout for all files of a driver together: the kernel has their contents at hand."""
AddressAndNodes = tuple[str, Sequence[str]]
"""The PCI address of a card, empty if unknown, and the paths of its nodes."""
_NO_CARDS: Mapping[Path, str] = {}


@dataclass(slots=True)
class CdiSpecs:
    """Reads the specifications of some kinds; reads a file again only if it has changed."""

    _read: dict[Path, tuple[tuple[int, int, int], Edits]] = field(default_factory=dict)

    def sets(self, kind: DeviceClass, host_root: Path) -> dict[str, bool]:
        """Return whether each device of *kind*, by name, sets the class's visible variable."""
        found: dict[str, frozenset[str]] = {}
        for path in self._files(kind, host_root):
            found |= self._edits(path)
        own = (name for name in found if kind.cdi_device(name) is not None)
        return {name: kind.visible_env in found[name] for name in own}

    def _files(self, kind: DeviceClass, host_root: Path) -> Iterator[Path]:
        if kind.visible_env and kind.cdi_kinds:
            for folder in FOLDERS:
                found = (host_root / folder).glob("*")
                yield from sorted(path for path in found if path.suffix in (".json", ".yaml", ".yml"))

    def _edits(self, path: Path) -> Edits:
        """Return the edits of one file; none if it cannot be read."""
        with suppress(OSError, ValueError, RecursionError, TypeError, AttributeError, KeyError):
            found = path.stat()
            identity = (found.st_ino, found.st_size, found.st_mtime_ns)
            before = self._read.get(path)
            if before is None or before[0] != identity:
                before = self._read[path] = (identity, {})  # also for a file that cannot be parsed
                if found.st_size <= LARGEST_BYTES:
                    before = self._read[path] = (identity, dict(_edits(_document(path))))
            return before[1]
        return {}


@dataclass(slots=True)
class DriverFiles:
    """Reads the files of drivers, which hang when a driver does; caches their contents."""

    patience: Patience = field(default_factory=Patience)
    timeout_s: float = DRIVER_TIMEOUT_S
    cdi: CdiSpecs = field(default_factory=CdiSpecs)
    _contents: dict[Path, str] = field(default_factory=dict)
    _cdi_sets: dict[str, dict[str, bool]] = field(default_factory=dict)
    """The last result for the CDI specifications of each class."""

    def read(self, paths: Iterable[Path], cards: Mapping[Path, str] = _NO_CARDS) -> list[str]:
        """Return the contents of files: empty if there are none; the previous contents while a file hangs.

        Args:
            paths: Paths of the files.
            cards: The card of each file whose path does not show it, for messages about files that hang.
        """
        paths, until_s, reads = list(paths), monotonic() + self.timeout_s, dict[Path, Future[str | None]]()
        names = {path: f"{path} of {cards[path]}" if path in cards else str(path) for path in paths}
        for path, name in names.items():
            with suppress(Hangs):
                reads[path] = self.patience.begin(name, partial(read_text, path))
        for path, future in reads.items():
            with suppress(Hangs):
                left_s = max(0.0, until_s - monotonic())
                self._contents[path] = self.patience.result(names[path], future, left_s) or ""
        return [self._contents.get(path, "") for path in paths]

    def cdi_sets(self, kind: DeviceClass, host_root: Path) -> dict[str, bool]:
        """Return the result of `CdiSpecs.sets`; the previous one while a file hangs."""
        name, work = f"the CDI specifications of {kind.name}", partial(self.cdi.sets, kind, host_root)
        with suppress(Hangs):
            self._cdi_sets[kind.name] = self.patience.ask(name, work, self.timeout_s)
        return self._cdi_sets.get(kind.name, {})

    def places(self, host_root: Path, cards: Mapping[str, AddressAndNodes]) -> list[Place]:
        """Return the places of *cards*, by names for messages; the NUMA node is unknown if a card's files hang."""
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
    """Return the cards of the machine with /dev, /proc and /sys below *host_root*, by the name of the class.

    Args:
        classes: The classes to search for.
        host_root: Prefix of all paths.
        files: Reads the files of drivers; if it is reused, cards keep their IDs while a driver hangs.
    """
    files = files or DriverFiles()
    return {kind.name: _stock(kind, host_root, files) for kind in classes}


def card_names(classes: Iterable[DeviceClass], host_root: Path) -> frozenset[str]:
    """Return names in the directories of nodes, drivers and CDI specifications: they change whenever the cards do."""
    paths = (path for kind in classes for path in (*kind.per_device, *kind.shared))
    folders = {NVIDIA_GPUS, *(split(path)[0].lstrip("/") for path in paths)}
    names = {f"{folder}/{name}" for folder in folders for name in entries(host_root / folder)}
    for folder in FOLDERS:
        for name in entries(host_root / folder):
            with suppress(OSError):
                names.add(f"{folder}/{name} {(host_root / folder / name).stat().st_mtime_ns}")
    return frozenset(names)


def find_cards_within(classes: Iterable[DeviceClass], host_root: Path, timeout_s: float = 2.0) -> dict[str, Stock]:
    """Return the result of `find_cards` for a command, which must not wait longer than *timeout_s*.

    Raises:
        Hangs: It took longer.
    """
    return Patience().ask("the machine's cards", partial(find_cards, tuple(classes), host_root), timeout_s)


def _stock(kind: DeviceClass, host_root: Path, files: DriverFiles) -> Stock:
    listed = dict(_nvidia_ids(host_root, files)) if kind.pci_vendor == "0x10de" else {}
    found: dict[int, list[str]] = {number: [] for number in listed}
    for number, path in _nodes(kind, host_root, files):
        found.setdefault(number, []).append(path)
    # In the order of the driver's list, by which it counts them; without the list, by number.
    numbers = [*listed, *sorted(found.keys() - listed.keys())]
    wanted = {f"{kind.name} {number}": (listed.get(number, ("", ""))[1], found[number]) for number in numbers}
    places = zip(numbers, files.places(host_root, wanted), strict=True)
    cards = tuple(
        Card(number, tuple(found[number]), listed.get(number, ("", ""))[0], *place) for number, place in places
    )
    shared = tuple(path for pattern in kind.shared for path in _matching(host_root, pattern))
    return Stock(cards, shared, files.cdi_sets(kind, host_root))


def _nodes(kind: DeviceClass, host_root: Path, files: DriverFiles) -> Iterator[tuple[int, str]]:
    """Yield the nodes of a class's cards, with the number of each card."""
    found = [path for template in kind.per_device for path in _matching(host_root, PLACEHOLDER.sub("*", template))]
    others = _paths_of_other_vendors(kind, host_root, files, found)
    for path in found:
        number = kind.card_number(path)
        if number is not None and path not in others:
            yield number, path


def _matching(host_root: Path, pattern: str) -> Iterator[str]:
    """Yield the paths of nodes that match *pattern*, sorted."""
    for path in sorted(host_root.glob(pattern.lstrip("/"))):
        yield f"/{path.relative_to(host_root)}"


def _paths_of_other_vendors(
    kind: DeviceClass, host_root: Path, files: DriverFiles, paths: Iterable[str]
) -> frozenset[str]:
    """Return those of *paths* whose cards are of another vendor, as far as the kernel knows the vendor."""
    if not kind.pci_vendor:
        return frozenset()
    owners = {
        file: path
        for path in paths
        for subsystem in ("drm", "accel")
        if (file := host_root / "sys/class" / subsystem / split(path)[1] / "device/vendor").exists()
    }
    vendors = files.read(owners, owners)
    pairs = zip(owners.values(), vendors, strict=True)
    return frozenset(path for path, vendor in pairs if vendor and vendor != kind.pci_vendor)


def _nvidia_ids(host_root: Path, files: DriverFiles) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the minor number of each GPU, its UUID and PCI address; in the order of addresses, as NVML counts them."""
    addresses = entries(host_root / NVIDIA_GPUS)
    texts = files.read(host_root / NVIDIA_GPUS / address / "information" for address in addresses)
    for address, text in zip(addresses, texts, strict=True):
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            yield int(minor[1]), (uuid[1], address)


def _document(path: Path) -> Any:  # noqa: ANN401 (any JSON or YAML)
    text = path.read_bytes()
    if path.suffix == ".json":
        return json.loads(text)
    import yaml  # takes 20 ms: only if there are such files

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _edits(document: Any) -> Iterator[tuple[str, frozenset[str]]]:  # noqa: ANN401
    common = _variables(document.get("containerEdits") or {})
    for device in document["devices"]:
        own = _variables(device.get("containerEdits") or {})
        yield f"{document['kind']}={device['name']}", common | own


def _variables(edits: Mapping[str, Any]) -> frozenset[str]:
    values: Iterable[str] = edits.get("env") or ()
    return frozenset(value.partition("=")[0] for value in values)
