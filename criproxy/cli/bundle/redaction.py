"""Pure: removes secrets from the files of a bundle.

Hidden are the values of environment variables and annotations, whatever they are, and everything else that is a
credential by its key or by its look: passwords, tokens, keys, certificates, credentials in URLs. In doubt, something
harmless is hidden, too.
"""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from criproxy.cli.bundle.patterns import (
    ANY_VARIABLE,
    HIDDEN,
    LEADING,
    MAPPING_BEFORE,
    OPTION_VARIABLES,
    PEM,
    SECRET_KEY,
    SECRETS_BEFORE,
    UNIT_ENVIRONMENT,
    VARIABLE,
    hide_ahead,
    hide_inline,
)

_VALUES_HIDDEN = frozenset({"annotations", "env", "envs", "environ", "environment"})
"""Keys whose values are mappings with values that are hidden, or lists of pairs."""
_BLOCK = ("", "|", ">", "|-", ">-", "|+", ">+")
"""What follows the key of a YAML value that is in the next lines."""
_MOST_OBJECTS = 200
"""Brackets in a line that may begin a JSON value; a line with more has been made to take long."""
_MOST_UNREAD = 8
"""Brackets in a line that begin none, before the rest of the line is not read as JSON."""
_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"[\[{]")
_MAX_DEPTH = 60


def redact_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return JSON values without secrets."""
    if depth > _MAX_DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        return {redact_text(key): _redact_item(key, item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_json(item, depth + 1) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def _redact_item(key: str, item: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
    if key.lower() in _VALUES_HIDDEN:
        return _without_values(item)
    if SECRET_KEY.search(key) and item not in (None, "", True, False):
        return HIDDEN
    return redact_json(item, depth)


def _without_values(item: Any) -> Any:  # noqa: ANN401 - JSON
    """Return annotations or an environment with the names only."""
    if isinstance(item, dict):
        return {redact_text(key): HIDDEN for key in item}
    if isinstance(item, list):
        return [_name_only(pair) for pair in item]
    return item if item in (None, "") else HIDDEN


def _name_only(pair: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(pair, dict):
        return {key: redact_text(str(item)) if key in ("key", "name") else HIDDEN for key, item in pair.items()}
    name, equals, _ = str(pair).partition("=")
    return f"{redact_text(name)}={HIDDEN}" if equals else HIDDEN


def redact_text(text: str, *, is_environment: bool = False) -> str:
    """Return *text* without secrets; lines that are a part of one are left out.

    Args:
        text: the text.
        is_environment: it is an environment file.
    """
    lines = _Lines(ANY_VARIABLE if is_environment else VARIABLE)
    text = PEM.sub(HIDDEN, text)
    return "\n".join(lines.redacted(text.split("\n")))


class _Lines:
    """Redacts one line after the other; knows whether a value goes on in the next line."""

    def __init__(self, variable: re.Pattern[str]) -> None:
        self._variable = variable
        self._until = ""
        """What ends a value in quotes that goes over several lines; a backslash: a line that does not end with one."""
        self._indent: int | None = None
        """The indentation of a secret key whose value is in the following lines."""

    def redacted(self, lines: list[str]) -> Iterator[str]:
        for line in lines:
            if not self._goes_on(line):
                yield self._line(line)

    def _goes_on(self, line: str) -> bool:
        """Whether *line* is a part of a hidden value that began before."""
        if self._until:
            ended = not line.endswith("\\") if self._until == "\\" else self._until in line
            self._until = "" if ended else self._until
            return True
        if self._indent is not None:
            indent = len(line) - len(line.lstrip())
            if not line.strip() or indent > self._indent or (indent == self._indent and line.lstrip()[:2] == "- "):
                return True
            self._indent = None
        return False

    def _line(self, line: str) -> str:
        if (found := self._variable.match(line)) and found["name"] not in OPTION_VARIABLES:
            self._until = _continued(found["value"])
            return found["key"] + (HIDDEN if found["value"] else "")
        if found := UNIT_ENVIRONMENT.match(line):
            self._until = "\\" if line.endswith("\\") else ""
            return found["key"] + " ".join(_names_only(found["value"]))
        if found := LEADING.match(line):
            value = found["value"].strip()
            self._until = _continued(value)
            if value in _BLOCK or not self._until:
                self._indent = len(found["indent"])
            return f"{found['indent']}{found['key']}{' ' if found['key'].endswith(':') else ''}{HIDDEN}"
        return _redact_line(line)


def _continued(value: str) -> str:
    """Return what ends *value* if it is not complete; empty if it is."""
    if value.endswith("\\"):
        return "\\"
    quote = value[:1]
    return quote if quote in ('"', "'") and quote not in value[1:] else ""


def _names_only(value: str) -> Iterator[str]:
    """Yield the variables of a unit's ``Environment=``."""
    try:
        words = shlex.split(value)
    except ValueError:
        words = [HIDDEN]
    for word in words:
        name, equals, _ = word.partition("=")
        yield f"{name}={HIDDEN}" if equals else HIDDEN


def _redact_line(line: str) -> str:
    """Return a line without secrets; JSON in it is read as such."""
    parts, place, begin, unread = list[str](), 0, 0, 0
    # The text from *begin* is not in *parts* yet; the next JSON value may begin at *place*.
    for _ in range(_MOST_OBJECTS):
        found = _OPENING.search(line, place)
        if found is None:
            return "".join(parts) + _redact_plain(line[begin:])
        value, end = _value_at(line, found.start())
        if value is None:
            unread += 1
            if unread > _MOST_UNREAD or hide_ahead(line[begin:]) != line[begin:]:
                return "".join(parts) + _redact_plain(line[begin:])
            place = found.end()
            continue
        before = line[begin : found.start()]
        parts += [_redact_plain(before), _shown(value, before)]
        place = begin = end
    return "".join(parts) + _redact_plain(_OPENING.split(line[begin:])[0]) + HIDDEN


def _shown(value: Any, before: str) -> str:  # noqa: ANN401 - JSON
    """Return a JSON value that follows the text *before*, without secrets."""
    if value and SECRET_KEY.search(before) and SECRETS_BEFORE.search(before):
        return HIDDEN
    hidden = _without_values(value) if MAPPING_BEFORE.search(before) else redact_json(value)
    return json.dumps(hidden, ensure_ascii=False)


def _value_at(line: str, start: int) -> tuple[Any, int]:
    """Return the JSON object or list at *start*, and where it ends; None if there is none."""
    try:
        return _DECODER.raw_decode(line, start)
    except (ValueError, RecursionError):
        return None, start


def _redact_plain(text: str) -> str:
    return hide_inline(hide_ahead(text))
