"""Values of a scenario file that know their line: read with types, and whatever is wrong names the place."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from criproxy.config.reading.document import Document, Path
from criproxy.config.reading.mistake import Mistake
from criproxy.config.reading.validation_errors import dotted
from criproxy.config.reading.words import did_you_mean, shown
from criproxy.model.cpuset import CpuSet, parse_cpuset

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
    path: Path
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
        except ValueError as error:
            raise self.wrong(str(error)) from None

    def cpuset(self) -> CpuSet:
        """A list of ids in kernel notation."""
        return self.read(parse_cpuset)

    def texts(self) -> tuple[str, ...]:
        """A list of words."""
        return tuple(item.text() for item in self.items())
