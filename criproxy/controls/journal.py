"""What was there before, on disk: stored before the first write, so that it is put back even after a crash.

The kernel forgets all of it when the machine boots, and numbers of interrupts then belong to other devices: what is
stored counts only for the boot in which it was stored.

What files had is one JSON object. What containers have is JSON lines, of which later ones count: with thousands of
containers, a start must not wait for a file that is written anew. The first line names the boot; each other one has
``id`` and either ``controls`` (`ContainerControls`, or null: it has none any more) or ``former`` (see `Journal`).
"""

import errno
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from criproxy.errors import CriproxyError, reason_of
from criproxy.host.files import read_text
from criproxy.model.controls import ContainerControls
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.store.files import check_own, write_whole

BEFORE, CONTAINERS = "before.json", "containers.jsonl"
_MOST_OLD_LINES = 1000
"""Lines that do not count any more; with more of them, the file is written anew."""


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
    _size_bytes: int = -1
    """Of the file of containers, as it was written last; negative: it is to be written anew."""
    _lines: int = 0
    """In that file."""
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
            journal.originals = {str(name): str(text) for name, text in _read(path, journal.boot).items()}
            journal._read_containers()
        except OSError as error:
            raise CriproxyError(f"cannot read {error.filename or directory}: {error.strerror}") from error
        except ValueError as error:
            moved = f"what was there before is not put back if you move {directory}/*.json* away"
            raise CriproxyError(f"a file in {directory} is damaged ({error}): {moved}") from error
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
            before = self.containers
            changed = {key: each for key, each in containers.items() if before.get(key) != each}
            removed = {key for key in gone if key in before and key not in containers}
            if not (changed or removed):
                return
            kept = {key: each for key, each in before.items() if key not in removed} | changed
            touched = {key: former for key, former in self.former.items() if key in changed or key in removed}
            counting = _counting(touched, kept)
            former = {key: each for key, each in self.former.items() if key not in touched} | counting
            lines = [_line(key, controls=to_plain(kept.get(key))) for key in (*changed, *removed)]
            lines += [_line(key, former=counting.get(key, {})) for key in touched]
            self._write(kept, former, lines)

    def former_of(self, id: str, part: str) -> Any:  # noqa: ANN401 (JSON)
        """Return what a container had before, as *part* has stored it; None: it has not set anything."""
        return self.former.get(id, {}).get(part)

    def keep_former(self, id: str, part: str, value: Any) -> None:  # noqa: ANN401 (JSON)
        """Store what a container had, before the first write. Not synced, as above.

        It goes with the controls of the container that *part* has applied, see `keep_containers`.

        Raises:
            CriproxyError: the disk fails; nothing is changed.
        """
        with self._lock:
            former = {**self.former.get(id, {}), part: value}
            try:
                self._write(self.containers, {**self.former, id: former}, [_line(id, former=former)])
            except OSError as error:
                file = self.directory / CONTAINERS
                raise CriproxyError(f"what was there before cannot be stored in {file}: {reason_of(error)}") from error

    def _write(
        self, containers: dict[str, ContainerControls], former: dict[str, dict[str, Any]], lines: list[str]
    ) -> None:
        """Store *containers* and *former*; *lines* are what is new of them."""
        count, counting = self._lines + len(lines), len(containers) + len(former)
        if count > 2 * counting + _MOST_OLD_LINES or not self._append("".join(lines).encode()):
            lines = [_line(key, controls=to_plain(each)) for key, each in containers.items()]
            lines += [_line(key, former=each) for key, each in former.items()]
            text, count = _head(self.boot) + "".join(lines), len(lines)
            write_whole(self.directory, CONTAINERS, text, synced=False)
            self._size_bytes = len(text)
        self._lines, self.containers, self.former = count, containers, former

    def _append(self, text: bytes) -> bool:
        """Write *text* at the end of the file; return whether that is possible: the file is as it was left.

        Raises:
            OSError: the disk fails; the file is to be written anew.
        """
        size_bytes, self._size_bytes = self._size_bytes, -1  # until it is known what the file has
        if size_bytes < 0:
            return False
        try:
            file = os.open(self.directory / CONTAINERS, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(file).st_size != size_bytes:
                return False
            if os.write(file, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
        self._size_bytes = size_bytes + len(text)
        return True

    def _read_containers(self) -> None:
        """Read what containers have; nothing if the file is missing or of another boot.

        Raises:
            ValueError: it is damaged.
        """
        path, found = self.directory / CONTAINERS, dict[str, Any]()
        text = path.read_text(errors="replace") if path.exists() else ""
        if not text.startswith(_head(self.boot)):
            return  # what is not synced may be anything after a power failure
        # The last line may be a part of one, by a full disk or a kill: of that, nothing was applied.
        lines = text.removeprefix(_head(self.boot)).split("\n")[:-1]
        for number, line in enumerate(lines, 2):
            try:
                value = json.loads(line)
                if "controls" in value:
                    found[value["id"]] = value["controls"]
                else:
                    self.former[value["id"]] = dict(value["former"])
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise ValueError(f"{CONTAINERS}, line {number}: {error!r}") from error
        self.containers = {key: from_plain(ContainerControls, each) for key, each in found.items() if each is not None}
        self.former = _counting(self.former, self.containers)

    def _write_originals(self, originals: dict[str, str]) -> None:
        if originals != self.originals:
            values = {"boot": self.boot, "values": originals}
            write_whole(self.directory, BEFORE, json.dumps(values, indent=0, sort_keys=True) + "\n")
            self.originals = originals


def _counting(
    former: Mapping[str, Mapping[str, Any]], containers: Mapping[str, ContainerControls]
) -> dict[str, dict[str, Any]]:
    """Return those of the *former* values that *containers* have a class instead of now."""
    found = {
        key: {part: each for part, each in values.items() if getattr(containers[key], part) not in ("", None)}
        for key, values in former.items()
        if key in containers
    }
    return {key: each for key, each in found.items() if each}


def _head(boot: str) -> str:
    return json.dumps({"boot": boot}) + "\n"


def _line(key: str, **values: Any) -> str:  # noqa: ANN401 (JSON)
    return json.dumps({"id": key, **values}) + "\n"


def _read(path: Path, boot: str) -> Mapping[str, Any]:
    """Return the values in a file; none if it is missing or of another boot.

    Raises:
        ValueError: it is damaged.
    """
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(errors="replace"))
        return dict(data["values"]) if data["boot"] == boot else {}
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error!r}") from error
