"""What was there before, on disk: stored before the first write, so that it is put back even after a crash.

The kernel forgets all of it when the machine boots, and numbers of interrupts then belong to other devices: what is
stored counts only for the boot in which it was stored.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.host.files import read_text
from criproxy.model.controls import ContainerControls
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.store.files import check_own, write_whole

BEFORE, CONTAINERS, FORMER = "before.json", "containers.json", "former.json"


@dataclass(slots=True)
class Journal:
    """The stored values. Blocks; may be changed by several threads."""

    directory: Path
    boot: str
    """The kernel's name for this boot."""
    originals: dict[str, str] = field(default_factory=dict)
    """Path → what the file had before the first write."""
    containers: dict[str, ContainerControls] = field(default_factory=dict)
    """Id → the controls that were applied last."""
    former: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Id → field of `ContainerControls` → what the container had before a class set that; missing: nothing was set."""
    _lines: dict[str, str] = field(default_factory=dict)
    """The same as members of a JSON object: of thousands, one or two change."""
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def open(cls, directory: Path, host_root: Path) -> "Journal":
        """Read the journal in *directory*, which is made if it is missing.

        Raises:
            CriproxyError: it cannot be read or is damaged: without it, nothing could be put back.
        """
        journal = cls(directory, read_text(host_root / "proc/sys/kernel/random/boot_id") or "")
        path = directory / BEFORE
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_own(directory)
            originals, containers = _read(path, journal.boot), _read(directory / CONTAINERS, journal.boot)
            journal.originals = {str(name): str(content) for name, content in originals.items()}
            journal.containers = {key: from_plain(ContainerControls, each) for key, each in containers.items()}
            journal.former = journal._counting(_read(directory / FORMER, journal.boot))
        except OSError as error:
            raise CriproxyError(f"cannot read {error.filename or directory}: {error.strerror}") from error
        except ValueError as error:
            moved = f"what was there before is not put back if you move {directory}/*.json away"
            raise CriproxyError(f"a file in {directory} is damaged ({error}): {moved}") from error
        journal._lines = {key: _line(key, each) for key, each in journal.containers.items()}
        return journal

    def keep(self, originals: Mapping[str, str]) -> None:
        """Store what files had before; it is on the disk when this returns.

        Raises:
            OSError: the disk fails; nothing is changed.
        """
        with self._lock:
            self._write_originals({**originals, **self.originals})

    def drop(self, paths: Collection[str]) -> None:
        """Remove files that have again what they had before; raises as `keep` does."""
        with self._lock:
            if paths:
                self._write_originals({path: text for path, text in self.originals.items() if path not in paths})

    def keep_containers(self, containers: Mapping[str, ContainerControls], gone: Iterable[str] = ()) -> None:
        """Store and remove what is applied to containers, for the next run of this program in the same boot.

        It need not survive a power failure, and is not synced: starts of containers wait for it.

        Raises:
            OSError: the disk fails; nothing is changed.
        """
        with self._lock:
            removed = {*gone}
            lines = {key: line for key, line in self._lines.items() if key not in removed}
            lines |= {key: _line(key, each) for key, each in containers.items()}
            if lines == self._lines:
                return
            values = ",\n".join(lines.values())
            text = f'{_head(self.boot)}, "values": {{\n{values}}}}}\n'
            write_whole(self.directory, CONTAINERS, text, synced=False)
            kept = {key: each for key, each in self.containers.items() if key not in removed}
            self._lines, self.containers = lines, {**kept, **containers}
            self._write_former(self._counting(self.former))

    def former_of(self, id: str, part: str) -> Any:  # noqa: ANN401 (JSON)
        """Return what a container had before, as *part* has stored it; None: it has not set anything."""
        return self.former.get(id, {}).get(part)

    def keep_former(self, id: str, part: str, value: Any) -> None:  # noqa: ANN401 (JSON)
        """Store what a container had, before the first write. Not synced, as above.

        It goes with the controls of the container that *part* has applied, see `keep_containers`.

        Raises:
            OSError: the disk fails; nothing is changed.
        """
        with self._lock:
            self._write_former({**self.former, id: {**self.former.get(id, {}), part: value}})

    def _write_former(self, former: dict[str, dict[str, Any]]) -> None:
        if former != self.former:
            write_whole(self.directory, FORMER, json.dumps({"boot": self.boot, "values": former}) + "\n", synced=False)
            self.former = former

    def _counting(self, former: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return those of the *former* values that containers have a class instead of now."""
        found = {
            key: {part: each for part, each in former.get(key, {}).items() if getattr(controls, part) not in ("", None)}
            for key, controls in self.containers.items()
        }
        return {key: each for key, each in found.items() if each}

    def _write_originals(self, originals: dict[str, str]) -> None:
        if originals != self.originals:
            values = {"boot": self.boot, "values": originals}
            write_whole(self.directory, BEFORE, json.dumps(values, indent=0, sort_keys=True) + "\n")
            self.originals = originals


def _head(boot: str) -> str:
    return f'{{"boot": {json.dumps(boot)}'


def _line(key: str, controls: ContainerControls) -> str:
    return f"{json.dumps(key)}: {json.dumps(to_plain(controls))}"


def _read(path: Path, boot: str) -> Mapping[str, Any]:
    """Return the values in a file; none if it is missing or of another boot.

    Raises:
        ValueError: it is damaged.
    """
    if not path.exists():
        return {}
    try:
        text = path.read_text(errors="replace")
        if path.name != BEFORE and not text.startswith(_head(boot)):
            return {}  # what is not synced may be anything after a power failure
        data = json.loads(text)
        return dict(data["values"]) if data["boot"] == boot else {}
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error!r}") from error
