"""The journal of an installation: each step before it is begun, with what the node had before, for its undo."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.install import paths
from criproxy.install.host import Attributes, Host
from criproxy.install.steps import KUBELET, PARTS, PROGRAM, START, Check, File, Folder, Run, Step

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

    def to_undo(self) -> list[File | Folder | Run]:
        """Return what is to be taken back, in order: of each part the last change of a file first, then commands.

        systemd reads its files, and criproxy releases all containers, before other commands; each runs once.
        """
        steps = [step for step in self.steps[self.completed :] if not isinstance(step, Check)]
        ordered = list[File | Folder | Run]()
        for part in PARTS:
            changes = [step for step in reversed(steps) if not isinstance(step, Run) and step.part == part]
            runs = [step for step in steps if isinstance(step, Run) and step.part == part and step.undo_command]
            unique = {run.undo_command: run for run in runs}
            first = [run for command, run in unique.items() if command == paths.RELOAD or command[:2] == paths.RELEASE]
            ordered += [*changes, *first, *(run for run in unique.values() if run not in first)]
        return ordered

    def without(self, *undone: Step) -> "Journal":
        """Return the journal without what was taken back, and without commands of the same part that do the same."""
        commands = [(step.part, step.undo_command) for step in undone if isinstance(step, Run)]
        kept = (
            step
            for step in self.steps[self.completed :]
            if not any(step is each for each in undone)
            and not (isinstance(step, Run) and (step.part, step.undo_command) in commands)
        )
        return replace(self, steps=(*self.steps[: self.completed], *kept))

    def for_removal(self) -> "Journal":
        """Return the journal of an uninstallation after the release of all containers: everything is taken back.

        Only, criproxy is not released again, nor restarted if it was stopped.
        """
        runs = [step for step in self.steps if isinstance(step, Run)]
        is_stopped = any(run.undo_command == paths.STOP for run in runs)
        unwanted = (
            run
            for run in runs
            if run.undo_command[:2] == paths.RELEASE or (is_stopped and run.undo_command == paths.RESTART)
        )
        return replace(self, completed=0).without(*unwanted)


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
    given = ((name, value) for name, value in values.items() if name != "kind")
    arguments: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given}
    if attributes := arguments.get("attributes"):
        arguments["attributes"] = Attributes(*attributes)
    step: Step = kinds[values["kind"]](**arguments)
    return step


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
            parts = (
                (PROGRAM, KUBELET) if command == paths.RELOAD else (PROGRAM,) if command == paths.RESTART else (START,)
            )
            parts = (KUBELET,) if command[1] == "restart" and command != paths.RESTART else parts
            yield from (Run(step["what"], part, undo_command=command) for part in parts)
