"""YAML text → plain data, with the place of every key and value, and every mistake that YAML itself would let pass.

The parser's nodes are read here instead of its finished data: that bounds time and memory whatever the file says,
keeps the places, finds keys given twice, and takes no word for what YAML 1.1 makes of it.

In 1.1, which the YAML library follows, ``no`` is false, ``0:30`` is 30, ``010`` is 8 and ``1_0`` is 10. Here they are
texts, and what is a number to one program and another number to the next is a mistake.
"""

import re
from dataclasses import dataclass, field
from math import isinf
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
    (r"but found another document", "a second document begins here: a file has one, without '---' in between"),
    (r"found undefined alias '(.*)'", r"*\1 refers to &\1, but nothing above has this anchor"),
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

    def inside(self, *path: str) -> "Document":
        """What is at *path*, with its places in the whole document; its data is None if there is nothing."""
        data = self.data
        for key in path:
            data = data.get(key) if isinstance(data, dict) else None
        keys, values = (
            {place[len(path) :]: at for place, at in places.items() if place[: len(path)] == path}
            for places in (self.keys, self.values)
        )
        return Document(data, keys, values, self.mistakes)


def parse(text: str, max_values: int = MAX_VALUES) -> Document:
    """Read one YAML document; what is wrong with it is in `Document.mistakes`, and then the data is incomplete."""
    document = Document()
    try:
        if top := _Composer(text, document, max_values).get_single_node():
            document.data = _Reader(document, max_values).read(top, ())
    except yaml.MarkedYAMLError as error:
        document.mistakes.append(from_marked(error))
    except yaml.reader.ReaderError as error:
        document.mistakes.append(from_reader(error, text))
    return document


def _hold_to_bounds(at: Any, count: int, depth: int, max_values: int) -> None:  # noqa: ANN401 (an event or a node)
    """Raise MarkedYAMLError for a document beyond the bounds."""
    problem = ""
    if count > max_values:
        problem = f"more than {max_values} values, each use of an alias counted"
    elif depth > MAX_DEPTH:
        problem = f"nested deeper than {MAX_DEPTH} levels"
    if problem:
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


class _Composer(yaml.SafeLoader):
    """Makes the nodes of a document, as long as it is within the bounds; an alias is the node that it refers to."""

    def __init__(self, text: str, document: Document, max_values: int) -> None:
        super().__init__(text)
        self._document, self._max_values = document, max_values
        self._count = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Check the bounds first: the parser calls itself for what is nested."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # nor have events types for what they carry
        is_collection = isinstance(event, yaml.CollectionStartEvent)
        self._count += 1
        self._depth += is_collection
        _hold_to_bounds(event, self._count // 2, self._depth, self._max_values)  # keys are nodes, too
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)  # an anchor that is given twice refers to the last one
            if event.tag is not None:
                tag = event.tag.replace("tag:yaml.org,2002:", "!!")
                text = f"the tag {tag!r} has no meaning here: leave it out, or put a text in quotes"
                self._document.mistakes.append(Mistake(*_place(event), text))
        node = super().compose_node(parent, index)
        self._depth -= is_collection
        return node


@dataclass(slots=True)
class _Reader:
    """Goes through nodes; what an alias refers to counts as often as it is used."""

    document: Document
    max_values: int
    count: int = 0

    def read(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401 (YAML is anything)
        """The data of a value; raises MarkedYAMLError for a document beyond the bounds."""
        self.count += 1
        _hold_to_bounds(node, self.count, len(path) + isinstance(node, yaml.CollectionNode), self.max_values)
        self.document.values[path] = _place(node)
        self.document.keys.setdefault(path, _place(node))
        match node:
            case yaml.MappingNode():
                return self._mapping(node, path)
            case yaml.SequenceNode():
                return [self.read(item, (*path, number)) for number, item in enumerate(node.value)]
            case yaml.ScalarNode(style=None):
                try:
                    return read_plain(node.value)
                except ValueError as error:
                    self._mistake(node, str(error))
                    return None
        return self._text(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            name = self._key(key, data, path)
            if name is None:
                self.read(value, (*path, ""))  # only for the mistakes in it
            else:
                self.document.keys[(*path, name)] = _place(key)
                data[name] = self.read(value, (*path, name))
        return data

    def _key(self, node: yaml.Node, data: dict[str, Any], path: Path) -> str | None:
        """The name of an option; None for a key that cannot be one."""
        if not isinstance(node, yaml.ScalarNode):
            self._mistake(node, "the name of an option must be a plain word")
            self.read(node, (*path, ""))
            return None
        name = self._text(node)
        if name in data:
            self._mistake(node, f"{name!r} is given twice, first in line {self.document.keys[(*path, name)][0]}")
        elif name == "<<" and node.style is None:
            self._mistake(node, "merge keys (<<) are not supported: write the options out")
        elif not name:
            self._mistake(node, "the name of an option is missing before ':'")
        else:
            return name
        return None

    def _text(self, node: yaml.Node) -> str:
        text = str(node.value)
        if _SURROGATE.search(text):  # such a text can be neither printed nor stored
            self._mistake(node, r"an escape from \ud800 to \udfff is not a character: write the character itself")
        return text

    def _mistake(self, node: yaml.Node, text: str) -> None:
        self.document.mistakes.append(Mistake(*_place(node), text))


def _place(at: Any) -> tuple[int, int]:  # noqa: ANN401 (an event or a node)
    return at.start_mark.line + 1, at.start_mark.column + 1


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
        number = float(text)
        if isinf(number) or _INTEGER.fullmatch(text):
            raise ValueError(f"the number {text} is too large")
        return number
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits.startswith("0"):
        raise ValueError(
            f"a number must not begin with 0, which some programs take for base 8: write {int(text)}, "
            f'or "{text}" in quotes if it is a text'
        )
    return int(text)
