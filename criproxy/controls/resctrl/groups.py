"""Our control groups in resctrl: made, given their schemata, and removed. Formats: the kernel's resctrl.rst.

Ours have `PREFIX` in their names. Those of others are never changed, and the root group only by the class that is named
after it; what that had before is stored, so that it is put back.
"""

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from criproxy.controls.machine.kernel import KernelFiles
from criproxy.errors import reason_of
from criproxy.host.files import entries, read_text
from criproxy.model.machine.resctrl import ROOT_CLASS, Schemata, line, parse_lines
from criproxy.store.files import write_whole

PREFIX = "criproxy."
SCHEMATA, TASKS = "schemata", "tasks"
ROOT_BEFORE = "resctrl.json"
"""In our state directory: what the root group had before."""
_MONITORS = "mon_groups"
_SHOWN = 5
_LONGEST_NAME = 200


class KernelGroups(KernelFiles):
    """The kernel's own files and groups; a model of them is derived from it."""

    def make(self, path: str) -> None:
        """Make a group; raises OSError."""
        os.mkdir(path)  # noqa: PTH102 (as the others)

    def remove(self, path: str) -> None:
        """Remove a group; its tasks go to the root group. Raises OSError."""
        os.rmdir(path)  # noqa: PTH106 (as the others)


class GroupError(Exception):
    """Something that resctrl does not take; the text says what, and why."""


class Groups:
    """The control groups below one mount of resctrl.

    Args:
        mount: where it is mounted.
        state_dir: where the root group's schemata are stored before they are changed.
        boot: the kernel's name for this boot: what is stored counts for it only.
        files: reads and writes.
    """

    def __init__(self, mount: Path, state_dir: Path, boot: str, files: KernelGroups) -> None:
        self.mount, self._state_dir, self._boot, self._files = mount, state_dir, boot, files
        self._shown: dict[str, tuple[Schemata, Schemata]] = {}
        """Class → what was written last, and what the kernel has shown then: it may round."""

    def path(self, name: str) -> Path:
        """Return the folder of the group of the class *name*."""
        return self.mount if name == ROOT_CLASS else self.mount / f"{PREFIX}{name}"

    def exists(self, name: str) -> bool:
        """Whether the group of a class is there."""
        return _is_name(name) and self.path(name).is_dir()

    def ours(self) -> list[str]:
        """Return the names of the classes that have a group, without the root group."""
        return [name.removeprefix(PREFIX) for name in entries(self.mount) if name.startswith(PREFIX)]

    def tasks(self, group: Path) -> frozenset[int]:
        """Return the numbers of the threads in a group; none if it is not there."""
        return frozenset(int(word) for word in (read_text(group / TASKS) or "").split() if word.isdigit())

    def ensure(self, name: str, schemata: Schemata, most: int) -> int:
        """Make a class's group as *schemata* says; return how many values others had changed.

        Args:
            name: of the class.
            schemata: what the group is to have.
            most: how many groups this machine can have, the root group among them.

        Raises:
            GroupError: resctrl does not take it; what it does take is set.
        """
        drift = 0
        if not self.exists(name):
            drift = int(name in self._shown)
            self._shown.pop(name, None)
            self._make(name, most)
        now = self._schemata(name)
        if name == ROOT_CLASS:
            self._keep_root(now)
        written, shown = self._shown.get(name, ({}, {}))
        if written == schemata:
            drift += sum(now.get(key) != values for key, values in shown.items())
        wrong = {
            key: values
            for key, values in schemata.items()
            if now.get(key) != values and not (written.get(key) == values and now.get(key) == shown.get(key))
        }
        self._write(name, {key: _different(values, now.get(key, {})) for key, values in wrong.items()})
        self._shown[name] = schemata, self._schemata(name) if wrong else now
        return drift

    def remove(self, name: str) -> None:
        """Remove the group of a class; its threads go to the root group.

        Raises:
            GroupError: the kernel does not remove it.
        """
        self._shown.pop(name, None)
        try:
            self._files.remove(str(self.path(name)))
        except FileNotFoundError:
            return
        except OSError as error:
            raise GroupError(f"{self.path(name)} cannot be removed: {self._why(error)}") from error

    def restore_root(self) -> None:
        """Put back what the root group had before a class changed it, if one did.

        Raises:
            GroupError: resctrl does not take it.
        """
        self._shown.pop(ROOT_CLASS, None)
        if before := self._root_before():
            now = self._schemata(ROOT_CLASS)
            self._write(ROOT_CLASS, {key: _different(values, now.get(key, {})) for key, values in before.items()})
            with suppress(OSError):
                (self._state_dir / ROOT_BEFORE).unlink()

    def move(self, number: int, group: Path) -> None:
        """Put a thread into a group, or into one for monitoring within a group.

        Raises:
            ProcessLookupError: it has ended.
            GroupError: resctrl does not take it.
        """
        # A group for monitoring takes only threads of the control group around it.
        for place in (group.parent.parent, group) if group.parent.name == _MONITORS else (group,):
            try:
                self._files.write(str(place / TASKS), str(number))
            except ProcessLookupError:
                raise
            except OSError as error:
                raise GroupError(f"{place / TASKS} does not take thread {number}: {self._why(error)}") from error

    def home(self, number: int, proc: Path) -> Path:
        """Return the group of a thread as `group_of` does; the root group instead of one of ours."""
        group = self.group_of(number, proc)
        return self.mount if group.name.startswith(PREFIX) or group.parent.parent.name.startswith(PREFIX) else group

    def group_of(self, number: int, proc: Path) -> Path:
        """Return in which control group a thread is, or in which one for monitoring within that.

        Args:
            number: of the thread.
            proc: where /proc is; older kernels do not have the group there.
        """
        names = _names(read_text(proc / f"{number}/cpu_resctrl_groups") or "")
        if not names:
            names["res"] = next((each for each in entries(self.mount) if number in self.tasks(self.mount / each)), "")
        group = self.mount / names.get("res", "")
        monitored = group / _MONITORS / names.get("mon", "")
        return monitored if names.get("mon") and monitored.is_dir() else group

    def _make(self, name: str, most: int) -> None:
        if not _is_name(name):
            raise GroupError(f"RDT class {name!r:.80} cannot have a control group: its name cannot be one of a folder")
        try:
            self._files.make(str(self.path(name)))
        except FileExistsError:
            return
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise GroupError(f"RDT class {name} has no control group: {self._full(most)}") from error
            raise GroupError(f"RDT class {name} has no control group: {self._why(error)}") from error

    def _full(self, most: int) -> str:
        names = (name for name in entries(self.mount) if not name.startswith(PREFIX))
        others = [name for name in names if (self.mount / name / SCHEMATA).exists()]
        shown = ", ".join([*others[:_SHOWN], *(["…"] if len(others) > _SHOWN else [])])
        by_others = f", of which others have made {len(others)}: {shown}" if others else ""
        return f"this machine can have {most}, the root group among them, and all are in use{by_others}"

    def _schemata(self, name: str) -> Schemata:
        try:
            return parse_lines(self._files.read(str(self.path(name) / SCHEMATA)))
        except OSError as error:
            raise GroupError(f"{self.path(name) / SCHEMATA}: {self._why(error)}") from error

    def _write(self, name: str, schemata: Schemata) -> None:
        """Write each resource on its own: one that is refused keeps no other from being written."""
        failed = []
        path = str(self.path(name) / SCHEMATA)
        for resource, values in sorted(schemata.items()):
            text = line(resource, values)
            try:
                if values:
                    self._files.write(path, text)
            except OSError as error:
                failed.append(f"{path} does not take {text}: {self._why(error)}")
        if failed:
            raise GroupError("; ".join(failed))

    def _why(self, error: OSError) -> str:
        """Return the reason of an error, with what resctrl itself says of it."""
        said = read_text(self.mount / "info/last_cmd_status") or "ok"
        return reason_of(error) if said == "ok" else f"{reason_of(error)} ({said})"

    def _keep_root(self, now: Schemata) -> None:
        if self._root_before() is None:
            values = {key: {str(id_): value for id_, value in each.items()} for key, each in now.items()}
            try:
                write_whole(self._state_dir, ROOT_BEFORE, json.dumps({"boot": self._boot, "schemata": values}))
            except OSError as error:
                text = f"what the root group had before cannot be stored in {self._state_dir / ROOT_BEFORE}"
                raise GroupError(f"{text}: {reason_of(error)}") from error

    def _root_before(self) -> Schemata | None:
        """Return what the root group had before; None if nothing is stored in this boot."""
        try:
            data = json.loads((self._state_dir / ROOT_BEFORE).read_text())
            if data["boot"] != self._boot:
                return None
            found = data["schemata"].items()
            return {key: {int(id_): int(value) for id_, value in each.items()} for key, each in found}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None


def _is_name(name: str) -> bool:
    """Whether the group of a class can have its name."""
    return name == ROOT_CLASS or (0 < len(name) <= _LONGEST_NAME and not {"/", "\n", "\0"} & {*name})


def _names(text: str) -> dict[str, str]:
    """Return the control group (``res``) and the group for monitoring (``mon``) in /proc/PID/cpu_resctrl_groups."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key: name.strip().strip("/") for key, name in pairs}


def _different(values: Mapping[int, int], now: Mapping[int, int]) -> Mapping[int, int]:
    return {id_: value for id_, value in values.items() if now.get(id_) != value}
