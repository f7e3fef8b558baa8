"""YAML text → plain data, with the place of every key and value, and every mistake that YAML itself would let pass."""

from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_BYTES = 1 << 20
MAX_VALUES = 20_000
"""Values in one document, each use of an alias counted: what looks small must not grow without bound."""
MAX_DEPTH = 32

Path = tuple[str | int, ...]
"""Keys and indexes that lead from the top of a document to a value."""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One thing that is wrong; line and column count from 1."""

    line: int
    column: int
    text: str


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


def parse(text: str) -> Document:
    """Read one YAML document; what is wrong with it is in `Document.mistakes`, and then the data is incomplete."""
    document = Document()
    loader = yaml.SafeLoader("")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            document.data = _Reader(loader, document).read(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        document.mistakes.append(Mistake(line, column, " ".join(filter(None, [error.context, error.problem]))))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        document.mistakes.append(Mistake(line, column, f"the character U+{error.character:04X} is not allowed in YAML"))
    except RecursionError:
        document.mistakes.append(Mistake(1, 1, f"nested deeper than {MAX_DEPTH} levels"))
    finally:
        loader.dispose()
    return document


class _Reader:
    def __init__(self, loader: yaml.SafeLoader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._left = MAX_VALUES

    def read(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401 (YAML is anything)
        """The data of *node*; raises MarkedYAMLError for a document beyond the bounds."""
        self._left -= 1
        if self._left < 0:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_VALUES} values", problem_mark=node.start_mark)
        if len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=node.start_mark)
        self._document.values[path] = self._document.keys[path] = _place(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._mistake(key, "a key must be a plain word")
            elif key.value in data:
                line, _ = self._document.keys[(*path, key.value)]
                self._mistake(key, f"{key.value!r} is given twice, first in line {line}")
            else:
                data[key.value] = self.read(value, (*path, key.value))
                self._document.keys[(*path, key.value)] = _place(key)
        return data

    def _scalar(self, node: yaml.Node) -> Any:  # noqa: ANN401 (YAML is anything)
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # such as the date 2024-13-45
            self._mistake(node, str(error))
            return None

    def _mistake(self, node: yaml.Node, text: str) -> None:
        self._document.mistakes.append(Mistake(*_place(node), text))


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
