"""Values of a scenario file that know their line: read with types, and whatever is wrong names the place.

Among them are the pools that it expects of a policy before any container has come.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from criproxy.config.document import Document
from criproxy.config.document import Path as DocumentPath
from criproxy.config.mistakes import Mistake, did_you_mean, shown
from criproxy.config.validation_errors import dotted
from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered, parse_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.placement.policies.api import HasPools, Policy

T = TypeVar("T")


class Wrong(Exception):
    """A value of a scenario file that cannot be used; ends the reading of what it is part of."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.text)
        self.mistake = mistake


@dataclass(frozen=True, slots=True)
class At:
    """A value, and the way to it from the top of its file."""

    document: Document
    path: DocumentPath
    data: Any

    @property
    def line(self) -> int:
        """Counted from 1."""
        return self.document.place(self.path, of_key=True)[0]

    def wrong(self, text: str, *, of_key: bool = False) -> Wrong:
        """The error to raise: *text* says what is wrong and what would be right."""
        what = f"{dotted(self.path)}: {text}" if self.path else text
        return Wrong(Mistake(*self.document.place(self.path, of_key=of_key), what))

    def fields(self, known: Mapping[str, object] | tuple[str, ...], required: tuple[str, ...] = ()) -> "dict[str, At]":
        """The entries of a group of which all names are *known* and the *required* ones are there."""
        fields = self.entries()
        for mistake in self.unknown(known):
            raise Wrong(mistake)
        for name in required:
            if name not in fields:
                raise self.wrong(f"{name!r} is missing")
        return fields

    def unknown(self, known: Mapping[str, object] | tuple[str, ...]) -> list[Mistake]:
        """A mistake for each entry whose name is not *known*."""
        return [
            field.wrong(f"unknown key {name!r}{did_you_mean(name, known)}", of_key=True).mistake
            for name, field in self.entries().items()
            if name not in known
        ]

    def entries(self) -> "dict[str, At]":
        """The entries of a group whatever their names are."""
        if not isinstance(self.data, dict):
            raise self.wrong(f"must be a group such as {{name: value}}, not {shown(self.data)}")
        return {name: At(self.document, (*self.path, name), value) for name, value in self.data.items()}

    def items(self) -> "Iterator[At]":
        """The members of a list."""
        if not isinstance(self.data, list):
            raise self.wrong(f"must be a list, not {shown(self.data)}")
        return (At(self.document, (*self.path, index), value) for index, value in enumerate(self.data))

    def text(self) -> str:
        """One word or number, as it was written."""
        if isinstance(self.data, bool):
            return str(self.data).lower()
        if not isinstance(self.data, str | int | float):
            raise self.wrong(f"must be a text, not {shown(self.data)}")
        return str(self.data)

    def one_of(self, words: tuple[str, ...]) -> str:
        """One of *words*."""
        word = self.text()
        if word not in words:
            raise self.wrong(f"must be one of {', '.join(words)}, not {shown(self.data)}{did_you_mean(word, words)}")
        return word

    def number(self, least: int = 0) -> int:
        """A whole number of at least *least*."""
        if type(self.data) is not int or self.data < least:
            raise self.wrong(f"must be a whole number from {least} on, not {shown(self.data)}")
        return self.data

    def key_number(self, of_what: str) -> int:
        """The key that leads here, which is the number *of_what*."""
        key = str(self.path[-1])
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise self.wrong(f"must be the number of {of_what}", of_key=True)
        return int(key)

    def read(self, convert: Callable[[str], T]) -> T:
        """The text as *convert* reads it, which raises ValueError with what would be right."""
        text = self.text()
        try:
            return convert(text)
        except (ValueError, UsageError) as error:
            raise self.wrong(str(error)) from None

    def cpuset(self) -> CpuSet:
        """A list of ids in kernel notation."""
        return self.read(parse_cpuset)

    def texts(self) -> tuple[str, ...]:
        """A list of words."""
        return tuple(item.text() for item in self.items())


Place = tuple[CpuSet, CpuSet]
"""CPUs and memory nodes."""


@dataclass(frozen=True, slots=True)
class ExpectedPools:
    """Pools by name, each with the places of its instances."""

    line: int
    pools: Mapping[str, tuple[Place, ...]]

    def wrong_with(self, policy: Policy, topology: Topology) -> str:
        """What *policy* makes otherwise of *topology*, in a sentence; empty if nothing."""
        if not isinstance(policy, HasPools):
            return "the policy has no fixed pools"
        found = policy.pools(topology)
        for name, wanted in self.pools.items():
            places = tuple((grant.cpus, grant.mems) for grant in found.get(name, ()))
            if name not in found:
                return f"there is no pool {name}; pools are: {', '.join(found)}"
            if places != wanted:
                return f"the pool {name} should be {_words(wanted)}, and is {_words(places)}"
        return ""


def read_expected_pools(at: At) -> ExpectedPools:
    """The pools at *at*; raises Wrong."""
    pools = {name: tuple(_place(item) for item in pool.items()) for name, pool in at.entries().items()}
    return ExpectedPools(at.line, pools)


def _place(at: At) -> Place:
    fields = at.fields(("cpus", "mems"), required=("cpus", "mems"))
    return fields["cpus"].cpuset(), fields["mems"].cpuset()


def _words(places: tuple[Place, ...]) -> str:
    words = [f"{numbered('CPU', cpus)} with memory {format_cpuset(mems)}" for cpus, mems in places]
    return " and ".join(words) or "nothing"


def read_text(file: Path, most_bytes: int, wanted: str) -> str:
    """The text of *file*, which must be *wanted*; raises UsageError if it cannot be read, or is too large."""
    try:
        with file.open("rb") as source:
            content = source.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise UsageError(f"{file} has more than {most_bytes >> 20} MiB, too much: it must be {wanted}")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error, wanted) from error


def unreadable(file: Path, error: OSError | UnicodeDecodeError, wanted: str, lines_before: int = 0) -> UsageError:
    """What to raise of *error* at *file*, which must be *wanted*; what was decoded has so many *lines_before* it."""
    if isinstance(error, UnicodeDecodeError):
        line = lines_before + error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        return UsageError(f"{file}:{line}: the byte 0x{byte:02X} is not UTF-8 text: it must be {wanted}")
    if isinstance(error, FileNotFoundError):
        return UsageError(f"{file}: there is no such file")
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{file}: is a directory: it must be {wanted}")
    return UsageError(f"{file}: cannot be read ({error.strerror or error}): it must be {wanted}")
