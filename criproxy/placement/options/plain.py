"""Plain data out of the YAML in annotations: texts, booleans, whole numbers, lists and maps, and nothing else.

A loader that knows more (dates, sets, binary data, classes, numbers of any length) would return values that
policies do not expect. A plain scalar that is neither a number nor a boolean is a text, as in CRI-RM.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import yaml

from criproxy.model.text.annotations import MAX_VALUE_CHARS

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a PyYAML without libyaml has only the latter
MAX_DEPTH = 16
MAX_NODES = 1024
"""Texts, numbers, lists and maps in one document: each takes time, in which no other call is answered."""
_SHORT_CHARS = 2048
"""Of a short document; people write such ones. Those that are kept take some 30 times their text."""
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_WORDS = {
    "": None, "~": None, "null": None, "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False,
}  # fmt: skip
"""In lower case, upper case, or with the first letter in upper case."""
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_ALIASES = f"it has aliases (*), or is nested deeper than {MAX_DEPTH} levels: write it plainly"
_KEYS = "the keys of its maps must be texts"


class Document(NamedTuple):
    """A document that has been read."""

    data: object
    """What it says; keys of maps are texts; not to be changed."""
    parts: int
    """Its texts, numbers, lists and maps."""


def plain_data(text: str) -> object:
    """What the YAML in *text* says, see `read_document`."""
    return read_document(text).data


def read_document(text: str) -> Document:
    """The YAML in *text*.

    Raises:
        ValueError: it is not YAML, has aliases, by which a short text becomes a very long one, or tags, or is nested
            deeply, or has more than `MAX_NODES` parts; one sentence of ours.
    """
    read = _short if len(text) <= _SHORT_CHARS else _long if len(text) <= MAX_VALUE_CHARS else _answer
    answer = read(text)
    if isinstance(answer, ValueError):
        raise ValueError(str(answer))  # noqa: TRY004 (another error than the one that is kept, whose frames would grow)
    return answer


def _answer(text: str) -> Document | ValueError:
    """The YAML in *text*; a ValueError if it is none."""
    try:
        return _parsed(text)
    except ValueError as error:
        return ValueError(str(error))  # without the frames of the first one


# Policies read the documents of a pod again for each of its containers and whenever others are placed, and the kubelet
# repeats what was refused.
_short = lru_cache(maxsize=128)(_answer)
_long = lru_cache(maxsize=128)(_answer)


def _parsed(text: str) -> Document:
    try:
        return _built(yaml.parse(text, Loader=_Loader))
    except ValueError as error:
        if isinstance(error, UnicodeError):
            raise ValueError("it is not YAML: it has characters that are not valid text") from None  # noqa: TRY004 (as its callers expect)
        raise
    except yaml.MarkedYAMLError as error:
        at = f" in line {mark.line + 1}, column {mark.column + 1}" if (mark := error.problem_mark) else ""
        raise ValueError(f"it is not YAML: {error.problem or 'it cannot be read'}{at}") from None
    except yaml.YAMLError:
        raise ValueError("it is not YAML: it has characters that YAML does not allow") from None


def _built(events: Iterator[yaml.Event]) -> Document:
    """What *events* describe; without recursion, so that no depth is too much."""
    roots: list[object] = []
    open_nodes = [_Open(roots)]
    nodes = documents = 0
    for event in events:
        nodes += isinstance(event, yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.AliasEvent) or len(open_nodes) > MAX_DEPTH + 1:
            raise ValueError(_ALIASES)
        if nodes > MAX_NODES or documents > 1:
            raise ValueError(f"it has more than {MAX_NODES} parts" if nodes > MAX_NODES else "it is several documents")
        _take(event, open_nodes)
    return Document(roots[0] if roots else None, nodes)


class _Open:
    """A list or a map that is being read."""

    __slots__ = ("key", "node")

    def __init__(self, node: list[object] | dict[str, object]) -> None:
        self.node = node
        self.key: str | None = None

    def add(self, value: object) -> None:
        if isinstance(self.node, list):
            self.node.append(value)
        elif self.key is None:
            if not isinstance(value, str):
                raise ValueError(_KEYS)  # noqa: TRY004 (users' data)
            self.key = value
        else:
            self.node[self.key], self.key = value, None


def _take(event: yaml.Event, open_nodes: list[_Open]) -> None:
    if isinstance(event, yaml.ScalarEvent):
        innermost = open_nodes[-1]
        innermost.add(_scalar(event, is_key=isinstance(innermost.node, dict) and innermost.key is None))
    elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
        _check_tag(event.tag, ())
        node: list[object] | dict[str, object] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        open_nodes[-1].add(node)
        open_nodes.append(_Open(node))
    elif isinstance(event, yaml.CollectionEndEvent):
        open_nodes.pop()


def _scalar(event: yaml.ScalarEvent, *, is_key: bool) -> object:
    text: str = event.value
    _check_tag(event.tag, _TEXT_TAGS)
    if is_key or event.tag or event.style:
        return text
    if text.lower() in _WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return _WORDS[text.lower()]
    return int(text) if _INTEGER.fullmatch(text) else text


def _check_tag(tag: str | None, known: frozenset[str] | tuple[()]) -> None:
    if tag is not None and tag not in known:
        raise ValueError("it has tags (!): write it plainly")
