"""Parses YAML into values with their lines, as NVIDIA's plugin does: with Go's YAML library on the way to JSON.

It uses the scanner and the parser of PyYAML, but neither its resolver nor its composer: these know base-60 numbers and
dates, reject a second document and tabs, and give a key precedence over a merge.
"""

import base64
import binascii
from contextlib import suppress
from dataclasses import dataclass

import yaml

from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError, quoted
from criproxy.deviceplugin.nvidia.go.numbers import INT64, shortest
from criproxy.deviceplugin.nvidia.go.yaml_scalars import TAG_BINARY, WrongTagError, plain_value, tagged_value

Data = str | float | bool | None | list["Value"] | dict[str, "Value"]

MAX_VALUES = 100_000
"""Limit for values in a file, counting each use of an alias: a short file must not expand without bound."""
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the file, and its line."""

    data: Data
    line: int
    count: int = 1
    """Number of values in it, including itself."""


class _Loader(yaml.SafeLoader):
    """Accepts tabs as blanks outside of indentation, as in JSON."""

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()

    def scan_plain_spaces(self, indent: int, start_mark: yaml.Mark) -> list[str]:
        blanks = 0
        while self.peek(blanks) in (" ", "\t"):
            blanks += 1
        if self.peek(blanks) in "\0\r\n\x85\u2028\u2029":
            self.forward(blanks)
            return super().scan_plain_spaces(indent, start_mark) or []
        found = self.prefix(blanks)
        self.forward(blanks)
        return [found] if found else []


def read_yaml(text: str) -> Value:
    """Return the first document of *text*.

    Raises:
        PluginConfigError: With the class ``syntax``.
    """
    try:
        found = _Composer(_first_document(text)).value(0)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _error(line, _problem(error)) from None
    except yaml.reader.ReaderError as error:
        raise _error(text.count("\n", 0, error.position) + 1, "control characters are not allowed in YAML") from None
    _check_json(found)
    return found


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Return the parser's message, or a clearer one for the most common mistake."""
    problem = error.problem or error.context or "this is not YAML"
    tab = problem.startswith(r"found character '\t'")
    return "found a tab where a value or a key begins: indent with spaces" if tab else problem


def _first_document(text: str) -> list[yaml.Event]:
    """Return the events of the values in the first document; what follows it is not parsed."""
    events: list[yaml.Event] = []
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.DocumentStartEvent() if event.version not in (None, (1, 1)):
                raise _error(_line(event), "found incompatible YAML document: only %YAML 1.1 is understood")
            case yaml.DocumentEndEvent():
                break
            case yaml.NodeEvent() | yaml.CollectionEndEvent():
                events.append(event)
    return events


def second_document(text: str) -> int:
    """Return the line of a later document that is not empty; 0 if there is none, or if what follows is not YAML."""
    ended, line = False, 0
    with suppress(yaml.YAMLError):
        for event in yaml.parse(text, Loader=_Loader):
            if line and not (isinstance(event, yaml.ScalarEvent) and not event.value):
                return line
            line = _line(event) if ended and isinstance(event, yaml.DocumentStartEvent) else 0
            ended |= isinstance(event, yaml.DocumentEndEvent)
    return 0


class _Composer:
    """Composes values from the events of one document."""

    def __init__(self, events: list[yaml.Event]) -> None:
        self._events = events
        self._at = 0
        self._anchors: dict[str, Value | None] = {}
        self._count = 0

    def value(self, depth: int) -> Value:
        """Return the next value."""
        if not self._events:
            return Value(None, 1)
        event = self._events[self._at]
        self._at += 1
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            return self._count_values(self._alias(event), line)
        if depth > MAX_DEPTH:
            raise _error(line, f"values are nested deeper than {MAX_DEPTH} levels")
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None:
            self._anchors[anchor] = None  # until it is complete
        self._count_values(Value(None, line), line)
        found = self._node(event, depth)
        if anchor is not None:
            self._anchors[anchor] = found
        return found

    def _node(self, event: yaml.Event, depth: int) -> Value:
        match event:
            case yaml.SequenceStartEvent():
                return self._list(_line(event), depth)
            case yaml.MappingStartEvent():
                return self._mapping(_line(event), depth)
            case yaml.ScalarEvent():
                return Value(_scalar(event), _line(event))
        raise AssertionError(event)

    def _alias(self, event: yaml.AliasEvent) -> Value:
        name = event.anchor or ""
        if name not in self._anchors:
            raise _error(_line(event), f"unknown anchor {quoted(name)} referenced")
        found = self._anchors[name]
        if found is None:
            raise _error(_line(event), f"anchor {quoted(name)} value contains itself")
        return found

    def _count_values(self, value: Value, line: int) -> Value:
        self._count += value.count
        if self._count > MAX_VALUES:
            raise _error(line, f"more than {MAX_VALUES} values, each use of an alias counted")
        return value

    def _skip_end(self) -> bool:
        """Whether the collection ends here; steps over its end."""
        ended = isinstance(self._events[self._at], yaml.CollectionEndEvent)
        self._at += ended
        return ended

    def _list(self, line: int, depth: int) -> Value:
        items: list[Value] = []
        while not self._skip_end():
            items.append(self.value(depth + 1))
        return Value(items, line, 1 + sum(item.count for item in items))

    def _mapping(self, line: int, depth: int) -> Value:
        data: dict[str, Value] = {}
        while not self._skip_end():
            merges = _is_merge(self._events[self._at])
            key = self.value(depth + 1)
            value = self.value(depth + 1)
            if merges:
                _merge(data, value)
            else:
                data[_key(key)] = value
        return Value(data, line, 1 + sum(item.count for item in data.values()))


def _is_merge(event: yaml.Event) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]


def _merge(data: dict[str, Value], merged: Value) -> None:
    """Add *merged* to *data*: it overrides what stands above it; of several mappings, the first takes precedence."""
    sources = merged.data[::-1] if isinstance(merged.data, list) else [merged]
    for source in sources:
        if not isinstance(source.data, dict):
            raise _error(source.line, "map merge requires map or sequence of maps as the value")
        data.update(source.data)


def _key(key: Value) -> str:
    """Return the key as its text in JSON."""
    match key.data:
        case str():
            return key.data
        case bool():
            return "true" if key.data else "false"
        case int() if key.data not in INT64:
            raise _error(key.line, f"{key.data} is too large a number for a key: put it in quotes")
        case int() | float():
            text = shortest(key.data)
            return {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}.get(text, text)
        case None:
            raise _error(key.line, "a key is missing, or it is null: a key must be a text, a number, true or false")
    raise _error(key.line, "a key must be a text, a number, true or false, not a list or a mapping")


def _scalar(event: yaml.ScalarEvent) -> str | float | bool | None:
    text = str(event.value)
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise _error(_line(event), r"an escape from \ud800 to \udfff is not a character: write the character itself")
    if event.tag is None:
        return plain_value(text) if event.implicit[0] else text
    try:
        if event.tag == TAG_BINARY:
            return base64.b64decode(text, validate=True).decode(errors="replace")
        return tagged_value(event.tag, text)
    except WrongTagError as error:
        raise _error(_line(event), str(error)) from None
    except binascii.Error:
        raise _error(_line(event), "!!binary value contains invalid base64 data") from None


def _check_json(value: Value) -> None:
    """Raise an error for a number that JSON does not support, at any depth."""
    match value.data:
        case float() if value.data - value.data != 0:
            raise _error(value.line, f"unsupported value: {shortest(value.data)}")
        case list():
            for item in value.data:
                _check_json(item)
        case dict():
            for item in value.data.values():
                _check_json(item)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _error(line: int, text: str) -> PluginConfigError:
    return PluginConfigError(text, mistake_class="syntax", line=line)
