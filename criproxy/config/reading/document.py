"""YAML text → plain data, with the place of every key and value, and every mistake that YAML itself would let pass.

The parser's events are read here instead of its finished data: that bounds time and memory whatever the file says,
keeps the places, finds keys given twice, and takes no word for what YAML 1.1 makes of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from criproxy.config.reading.mistake import Mistake
from criproxy.config.reading.scalars import read_plain
from criproxy.config.reading.syntax import from_marked, from_reader

MAX_VALUES = 20_000
"""Values in one document, each use of an alias counted: what looks small must not grow without bound."""
MAX_DEPTH = 32

_SURROGATE = re.compile(r"[\ud800-\udfff]")

Path = tuple[str | int, ...]
"""Keys and indexes that lead from the top of a document to a value."""


@dataclass(slots=True)
class Document:
    """What a policy file says."""

    data: Any = None
    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Line and column of the key that leads to a value (of the value itself, in lists)."""
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Line and column of each value."""
    mistakes: list[Mistake] = field(default_factory=list)

    def place(self, path: Path, *, of_key: bool) -> tuple[int, int]:
        """Line and column of *path*, or of the nearest thing around it."""
        places = self.keys if of_key else self.values
        while path and path not in places:
            path = path[:-1]
        return places.get(path) or self.values.get(path, (1, 1))


def parse(text: str, max_values: int = MAX_VALUES) -> Document:
    """Read one YAML document; what is wrong with it is in `Document.mistakes`, and then the data is incomplete."""
    document = Document()
    try:
        events = list(_events(text, max_values))
        if events:
            document.data = _Reader(events, document, max_values).read(())
    except yaml.MarkedYAMLError as error:
        document.mistakes.append(from_marked(error))
    except yaml.reader.ReaderError as error:
        document.mistakes.append(from_reader(error, text))
    return document


def _events(text: str, max_values: int) -> Iterator[yaml.Event]:
    """The events of the values in *text*; raises MarkedYAMLError for a document beyond the bounds, or a second one."""
    depth = count = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    _stop(event, "a second document begins here: a file has one, without '---' in between")
                continue
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
            case yaml.NodeEvent():
                pass
            case _:
                continue
        count += 1
        _hold_to_bounds(event, count // 2, depth, max_values)  # a collection has two events
        yield event


def _hold_to_bounds(event: yaml.Event, count: int, depth: int, max_values: int) -> None:
    if count > max_values:
        _stop(event, f"more than {max_values} values, each use of an alias counted")
    if depth > MAX_DEPTH:
        _stop(event, f"nested deeper than {MAX_DEPTH} levels")


def _stop(event: yaml.Event, problem: str) -> None:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=_mark(event))


class _Reader:
    """Goes through events; an alias goes through those of its anchor again, at the cost of as many values."""

    def __init__(self, events: list[yaml.Event], document: Document, max_values: int) -> None:
        self._events = events
        self._at = 0
        self._anchors: dict[str, int] = {}
        self._document = document
        self._count = 0
        self._max_values = max_values
        self._alias_in_use: yaml.AliasEvent | None = None
        """The one in the text itself: what it leads to may have aliases, too."""

    def read(self, path: Path) -> Any:  # noqa: ANN401 (YAML is anything)
        """The data of the next value; raises MarkedYAMLError for a document beyond the bounds."""
        event = self._next()
        self._count += 1
        _hold_to_bounds(self._alias_in_use or event, self._count, len(path), self._max_values)
        self._document.values[path] = _place(event)
        self._document.keys.setdefault(path, _place(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if event.anchor is not None:
            self._anchors[event.anchor] = self._at - 1
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._mistake(event, f"the tag {tag!r} has no meaning here: leave it out, or put a text in quotes")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path)
        return self._scalar(event)

    def _next(self) -> Any:  # noqa: ANN401 (the library's classes have no types for what they carry)
        self._at += 1
        return self._events[self._at - 1]

    def _ended(self) -> bool:
        """Step over the end of a collection, if it comes next."""
        ended = isinstance(self._events[self._at], yaml.CollectionEndEvent)
        self._at += ended
        return ended

    def _alias(self, event: yaml.AliasEvent, path: Path) -> Any:  # noqa: ANN401
        start = self._anchors.get(event.anchor or "")
        if start is None:
            self._mistake(event, f"*{event.anchor} refers to &{event.anchor}, but nothing above has this anchor")
            return None
        back, outer = self._at, self._alias_in_use
        self._at, self._alias_in_use = start, outer or event
        data = self.read(path)
        self._at, self._alias_in_use = back, outer
        return data

    def _list(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not self._ended():
            items.append(self.read((*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not self._ended():
            key = self._events[self._at]
            name = self._key(key, data, path)
            if name is None:
                self.read((*path, ""))  # only for the mistakes in it
            else:
                self._document.keys[(*path, name)] = _place(key)
                data[name] = self.read((*path, name))
        return data

    def _key(self, event: yaml.Event, data: dict[str, Any], path: Path) -> str | None:
        """The name of an option; None for a key that cannot be one."""
        if not isinstance(event, yaml.ScalarEvent):
            self._mistake(event, "the name of an option must be a plain word")
            self.read((*path, ""))
            return None
        self._at += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = self._at - 1
        name: str = self._text(event)
        if name in data:
            self._mistake(event, f"{name!r} is given twice, first in line {self._document.keys[(*path, name)][0]}")
        elif name == "<<" and event.implicit[0]:
            self._mistake(event, "merge keys (<<) are not supported: write the options out")
        elif not name:
            self._mistake(event, "the name of an option is missing before ':'")
        else:
            return name
        return None

    def _scalar(self, event: yaml.ScalarEvent) -> str | float | bool | None:
        if not event.implicit[0]:
            return self._text(event)
        try:
            return read_plain(event.value)
        except ValueError as error:
            self._mistake(event, str(error))
            return None

    def _text(self, event: yaml.ScalarEvent) -> str:
        text = str(event.value)
        if _SURROGATE.search(text):  # such a text can be neither printed nor stored
            self._mistake(event, r"an escape from \ud800 to \udfff is not a character: write the character itself")
        return text

    def _mistake(self, event: yaml.Event, text: str) -> None:
        self._document.mistakes.append(Mistake(*_place(event), text))


def _place(event: yaml.Event) -> tuple[int, int]:
    mark = _mark(event)
    return mark.line + 1, mark.column + 1


def _mark(event: yaml.Event) -> yaml.Mark:
    assert isinstance(event.start_mark, yaml.Mark), "this parser marks every event"
    return event.start_mark
