"""Pure: the steps of an installation as values, which a journal can hold."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """A file gets a new content."""

    path: str
    text: str
    why: str
    setting: str = ""
    """What of the file is ours: `edits` removes only that if others have changed the file since; empty: all of it."""
    keep: bool = False
    """Whether an uninstallation leaves the file if others have changed it since."""
    mode: int = 0o644
    """Of a file that does not exist yet."""

    @property
    def title(self) -> str:
        """The step in a sentence."""
        return f"write {self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Remove:
    """A file of criproxy is removed."""

    path: str
    why: str

    @property
    def title(self) -> str:
        """The step in a sentence."""
        return f"remove {self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Copy:
    """A directory of this program's machine is copied to the node, in place of an older copy."""

    source: str
    path: str

    @property
    def title(self) -> str:
        """The step in a sentence."""
        return f"copy {self.source} to the node's {self.path}"


@dataclass(frozen=True, slots=True)
class Made:
    """A directory that later steps let others make: taken back, it is removed with all that is in it."""

    path: str

    @property
    def title(self) -> str:
        """Empty: nothing to tell before the installation is taken back."""
        return ""


@dataclass(frozen=True, slots=True)
class Run:
    """Commands, and those that take them back."""

    what: str
    do: tuple[Command, ...] = ()
    undo: tuple[Command, ...] = ()
    undo_if: str = ""
    """Taken back only if the step with this `what` has begun; empty: always."""
    may_fail: bool = False
    """Whether commands of *undo* may fail: the rest is taken back all the same."""

    @property
    def title(self) -> str:
        """The step in a sentence; empty if it only takes back."""
        return f"{self.what}: {'; '.join(' '.join(command) for command in self.do)}" if self.do else ""


@dataclass(frozen=True, slots=True)
class Check:
    """Nothing changes; the installation goes on only if the answer is yes."""

    what: str
    """``version``, ``calls`` or ``ready``."""
    about: str

    @property
    def title(self) -> str:
        """The step in a sentence."""
        return _CHECKS[self.what].format(self.about)


_CHECKS = {
    "version": "check that the runtime answers through {}",
    "calls": "check that the kubelet's calls arrive at criproxy ({})",
    "ready": "check that the node is Ready, by {}",
}
Step = Write | Remove | Copy | Made | Run | Check
_KINDS: Mapping[str, type[Step]] = {kind.__name__: kind for kind in (Write, Remove, Copy, Made, Run, Check)}


def to_json(step: Step) -> dict[str, Any]:
    """Return *step* as JSON values."""
    return {"kind": type(step).__name__, **asdict(step)}


def from_json(values: Mapping[str, Any]) -> Step:
    """Return the step that `to_json` was given."""
    arguments = {name: value for name, value in values.items() if name != "kind"}
    for name in ("do", "undo"):
        if name in arguments:
            arguments[name] = tuple(tuple(command) for command in arguments[name])
    return _KINDS[values["kind"]](**arguments)
