"""YAML text → plain data, with the place of every key and value, and every mistake that YAML itself would let pass.

The parser's events are read here instead of its finished data: that bounds time and memory whatever the file says,
keeps the places, finds keys given twice, and takes no word for what YAML 1.1 makes of it.

In 1.1, which the YAML library follows, ``no`` is false, ``0:30`` is 30, ``010`` is 8 and ``1_0`` is 10. Here they are
texts, and what is a number to one program and another number to the next is a mistake.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from criproxy.config.mistakes import Mistake

_MEANINGS = (
    (r"character '\\t' that cannot start", "a tab; YAML is indented with spaces only"),
    (r"character '(@|`)' that cannot start", r"a text cannot begin with \1: put it in quotes"),
    (r"character '%' that cannot start", "a text cannot begin with %: put it in quotes"),
    (r"mapping values are not allowed", "a ':' does not fit here: quote the text, or check the indentation"),
    (r"sequence entries are not allowed", "a list cannot begin here: give each '- ' a line of its own"),
    (r"mapping keys are not allowed", "an option cannot begin here: check the line above and the indentation"),
    (r"could not find expected ':'", "a ':' is missing after the name of the option"),
    (r"found unexpected end of stream", "a quote is not closed before the end of the file"),
    (r"unexpected document separator", "a quote is not closed before '---'"),
    (r"expected <block end>", "this line does not fit the lines above: check its indentation"),
    (r"but got '<stream end>'|node content, but found '<stream end>'", "a bracket is not closed"),
    (r"expected ',' or '(.)'", r"a ',' or the closing '\1' is missing"),
    (r"expected '<document start>'", "this does not fit what is above: check brackets, quotes and indentation"),
    (r"expected the node content", "a value is missing before this"),
    (r"unknown escape character", r"no such escape in double quotes: use single quotes, or \\\\ for a backslash"),
    (r"undefined tag handle", "a text cannot begin with !: put it in quotes"),
    (r"incompatible YAML document", "only YAML 1.1 and 1.2 can be read: leave the %YAML line out"),
    (r"block scalar", "after | and > only - or +, and a comment, can stand: put the text on the next line"),
    (r"directive", "a line cannot begin with %: put it in quotes"),
)
"""Part of the library's sentence → ours."""
MAX_DIGITS = 18
"""A longer number is none that anything is measured in, and takes long to read."""
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
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


def from_marked(error: yaml.MarkedYAMLError) -> Mistake:
    """The mistake that the parser, or our own bounds, stopped at."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = " ".join(filter(None, [error.context, error.problem]))
    for pattern, meaning in _MEANINGS:
        if found := re.search(pattern, said):
            since = error.context_mark
            opened = ""
            if "not closed" in meaning and since and mark and since.index < mark.index:  # else: of what is missing
                opened = f" (it was opened in line {since.line + 1})"
            return Mistake(line, column, f"{found.expand(meaning)}{opened}")
    return Mistake(line, column, said)


def from_reader(error: yaml.reader.ReaderError, text: str) -> Mistake:
    """The mistake of a character that YAML forbids."""
    line = text.count("\n", 0, error.position) + 1
    column = error.position - text.rfind("\n", 0, error.position)
    name = f"U+{int(error.character):04X}"
    hint = "; is this a text file?" if int(error.character) < 0x80 else ""
    return Mistake(line, column, f"the character {name} is not allowed{hint}")


def read_plain(text: str) -> str | int | float | bool | None:
    """The value of the unquoted *text*.

    Raises:
        ValueError: a number that programs read differently, or a huge one.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= MAX_DIGITS and _INTEGER.fullmatch(text):
        return _integer(text)
    if len(text) <= 2 * MAX_DIGITS and _FLOAT.fullmatch(text):
        if _INTEGER.fullmatch(text):
            raise ValueError(f"the number {text} is too large")
        return float(text)
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits.startswith("0"):
        raise ValueError(
            f"a number must not begin with 0, which some programs take for base 8: write {int(text)}, "
            f'or "{text}" in quotes if it is a text'
        )
    return int(text)
