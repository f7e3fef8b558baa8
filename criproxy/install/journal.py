"""The journal of an installation: each step before it is begun, with what the node had before, for its undo."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.install import paths
from criproxy.install.host import Attributes, Host
from criproxy.install.steps import (
    KUBELET,
    PROGRAM,
    RELOAD,
    RESTART,
    START,
    STOP,
    Check,
    Command,
    File,
    Folder,
    Run,
    Step,
)

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Journal:
    """The steps in the order in which they were begun, without those that were taken back."""

    steps: tuple[Step, ...] = ()
    completed: int = 0
    """How many of the first steps are of installations that were completed."""

    @property
    def is_open(self) -> bool:
        """Whether an installation or uninstallation has begun and not ended."""
        return len(self.steps) > self.completed

    def open_changes(self, part: str) -> list[File | Folder]:
        """Return what is to be taken back of files and directories of a *part*, the last one first."""
        steps = reversed(self.steps[self.completed :])
        return [step for step in steps if isinstance(step, File | Folder) and step.part == part]

    def open_commands(self, part: str) -> list[Command]:
        """Return the commands that take the others of a *part* back, once each; systemd reads its files first."""
        runs = (step for step in self.steps[self.completed :] if isinstance(step, Run) and step.part == part)
        return sorted(dict.fromkeys(command for run in runs for command in run.undo), key=lambda each: each != RELOAD)

    def undo_titles(self, part: str) -> list[str]:
        """Return what taking a *part* back does, in sentences."""
        titles = [change.undo_title for change in self.open_changes(part)]
        return [*dict.fromkeys(filter(None, titles)), *map(" ".join, self.open_commands(part))]

    def without(self, change: Step | None = None, commands: str = "") -> "Journal":
        """Return the journal without an open *change*, and without the open *commands* of a part."""
        steps = self.steps[self.completed :]
        kept = (each for each in steps if each is not change and not (isinstance(each, Run) and each.part == commands))
        return replace(self, steps=(*self.steps[: self.completed], *kept))

    def for_removal(self) -> "Journal":
        """Return the journal of an uninstallation after the release of all containers: everything is taken back.

        Only, criproxy is not released again, nor restarted if it was stopped.
        """
        journal = replace(self, completed=0)
        unwanted = RESTART if STOP in journal.open_commands(START) else None
        commands = ((step, command) for step in self.steps if isinstance(step, Run) for command in step.undo)
        kept = (each for each in commands if each[1] != unwanted and each[1][0] != paths.PROGRAM)
        runs = (Run(step.what, step.part, undo=(command,)) for step, command in kept)
        changes = (step for step in self.steps if isinstance(step, File | Folder))
        return replace(journal, steps=(*changes, *runs))


def load(host: Host) -> Journal:
    """Return the journal; an empty one if there is no file.

    Raises:
        CriproxyError: the file has another content.
    """
    try:
        values = json.loads(host.read(paths.JOURNAL) or '{"version": 2, "steps": [], "completed": 0}')
        if values["version"] == 1:
            return _of_version_1(values)
        if values["version"] != _VERSION:
            raise CriproxyError(f"{paths.JOURNAL} was written by another version of criproxy: run that version")
        return Journal(tuple(map(_step, values["steps"])), values["completed"])
    except (ValueError, KeyError, TypeError) as error:
        raise CriproxyError(
            f"{paths.JOURNAL} is damaged ({error!r}): check the node by docs/install.md, and remove the file"
        ) from error


def save(host: Host, journal: Journal) -> None:
    """Write the journal for root alone, and wait until it is on disk; an empty one has no file."""
    if not journal.steps:
        host.forget_temporary(paths.JOURNAL)
        host.remove(paths.JOURNAL)
        return
    steps = [{"kind": type(step).__name__, **asdict(step)} for step in journal.steps]
    values = {"version": _VERSION, "completed": journal.completed, "steps": steps}
    host.write(paths.JOURNAL, json.dumps(values), mode=0o600)


def _step(values: Mapping[str, Any]) -> Step:
    kinds = {kind.__name__: kind for kind in (File, Folder, Run, Check)}
    arguments = {name: _frozen(value) for name, value in values.items() if name != "kind"}
    if attributes := arguments.get("attributes"):
        arguments["attributes"] = Attributes(*attributes)
    step: Step = kinds[values["kind"]](**arguments)
    return step


def _frozen(value: Any) -> Any:  # noqa: ANN401 - JSON
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _of_version_1(values: Mapping[str, Any]) -> Journal:
    """Return the journal that version 0.1 has written."""
    entries = values["entries"]
    begun = {entry["step"].get("what") for entry in entries}
    kept = [[*_of_entry(entry, begun)] for entry in entries[: len(entries) - values["undone"]]]
    steps = tuple(step for each in kept for step in each)
    if values["removing"]:
        return Journal(steps).for_removal()
    return Journal(steps, sum(map(len, kept[: values["completed"]])))


def _of_entry(entry: Mapping[str, Any], begun: set[str]) -> Iterator[Step]:
    step, before = entry["step"], entry["before"]
    path, folders, existed = step.get("path"), tuple(before["folders"]), before["existed"]
    if step["kind"] in ("Write", "Remove"):
        content, node = before["content"], before["node"]
        text = None if content is None else base64.b64decode(content).decode("utf-8", "surrogateescape")
        attributes = Attributes(**node) if existed and node["mtime_ns"] is not None else None
        part = KUBELET if step["why"].startswith("the kubelet") else PROGRAM
        setting, keep = step.get("setting", ""), step.get("keep", False)
        yield File(path, step.get("text"), step["why"], part, setting, keep, 0o644, text, attributes, folders)
    elif step["kind"] in ("Copy", "Made"):
        yield Folder(path, step.get("source", ""), PROGRAM, existed, folders)
    elif step["kind"] == "Run" and (not step["undo_if"] or step["undo_if"] in begun):
        for command in map(tuple, step["undo"]):
            parts = (PROGRAM, KUBELET) if command == RELOAD else (PROGRAM,) if command == RESTART else (START,)
            parts = (KUBELET,) if command[1] == "restart" and command != RESTART else parts
            yield from (Run(step["what"], part, undo=(command,)) for part in parts)
