"""How the machine's CDI specifications set a class's visible variable; everything else in them is the runtime's."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criproxy.devices.classes.device_class import DeviceClass

FOLDERS = ("etc/cdi", "var/run/cdi")
"""In the order in which runtimes read them: of two devices with one name, the later one counts."""
LARGEST_BYTES = 8 << 20

Edits = Mapping[str, frozenset[str]]
"""The variables that a device sets, by its name ``vendor/class=device``."""


@dataclass(slots=True)
class CdiSpecs:
    """Reads the specifications of some kinds; reads a file again only if it has changed."""

    _read: dict[Path, tuple[tuple[int, int, int], Edits]] = field(default_factory=dict)

    def sets(self, kind: DeviceClass, host_root: Path) -> dict[str, bool]:
        """Return whether each device of *kind*, by name, sets the class's visible variable."""
        found: dict[str, frozenset[str]] = {}
        for path in self._files(kind, host_root):
            found |= self._edits(path)
        return {
            name: kind.visible_env in variables
            for name, variables in found.items()
            if kind.cdi_device(name) is not None
        }

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
