"""The journal of an installation: each step that was begun, with what the node had before."""

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.install.host import Host, Node
from criproxy.install.planning import paths
from criproxy.install.planning.steps import Step, Write, from_json, to_json

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Before:
    """What the node had at the path of a step."""

    content: bytes | None = None
    """Of a file; None: there was none."""
    node: Node = field(default_factory=Node)
    existed: bool = False
    folders: tuple[str, ...] = ()
    """The directories above that did not exist, the outermost first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A step that was begun."""

    step: Step
    before: Before = field(default_factory=Before)


@dataclass(frozen=True, slots=True)
class Journal:
    """The steps in the order in which they were begun."""

    entries: tuple[Entry, ...] = ()
    completed: int = 0
    """How many of the first entries are of installations that were completed."""
    undone: int = 0
    """How many of the last entries were taken back."""
    removing: bool = False
    """Whether an uninstallation has begun."""

    @property
    def is_open(self) -> bool:
        """Whether an installation or uninstallation has begun and not ended."""
        return self.removing or len(self.entries) > self.completed

    @property
    def written(self) -> dict[str, str]:
        """Setting → the text with which a completed installation wrote it last."""
        steps = (entry.step for entry in self.entries[: self.completed])
        return {step.setting: step.text for step in steps if isinstance(step, Write) and step.setting}


@dataclass(frozen=True, slots=True)
class JournalFile:
    """The file with the journal; it exists as long as criproxy is installed, and belongs to root alone."""

    host: Host
    name: str = field(default=paths.JOURNAL)

    def load(self) -> Journal:
        """Return the journal; an empty one if there is no file.

        Raises:
            CriproxyError: the file has another content.
        """
        content = self.host.content(self.name)
        if content is None:
            return Journal()
        try:
            values = json.loads(content)
            if values["version"] != _VERSION:
                raise CriproxyError(f"{self.name} was written by another version of criproxy: run that version")
            entries = tuple(_entry(each) for each in values["entries"])
            return Journal(entries, values["completed"], values["undone"], values["removing"])
        except (ValueError, KeyError, TypeError) as error:
            raise CriproxyError(
                f"{self.name} is damaged ({error!r}): check the node by docs/install.md, and remove the file"
            ) from error

    def save(self, journal: Journal) -> None:
        """Write the journal, and wait until it is on disk."""
        values = {
            "version": _VERSION,
            "completed": journal.completed,
            "undone": journal.undone,
            "removing": journal.removing,
            "entries": [_values(entry) for entry in journal.entries],
        }
        self.host.write(self.name, json.dumps(values).encode(), Node(0o600, os.geteuid(), os.getegid()))

    def delete(self) -> None:
        """Remove the file, and what a killed `save` has left."""
        self.host.forget_temporary(self.name)
        self.host.remove(self.name)


def _values(entry: Entry) -> dict[str, Any]:
    before = asdict(entry.before)
    if entry.before.content is not None:
        before["content"] = base64.b64encode(entry.before.content).decode()
    return {"step": to_json(entry.step), "before": before}


def _entry(values: Mapping[str, Any]) -> Entry:
    before = values["before"]
    content = before["content"]
    return Entry(
        from_json(values["step"]),
        Before(
            None if content is None else base64.b64decode(content),
            Node(**before["node"]),
            before["existed"],
            tuple(before["folders"]),
        ),
    )
