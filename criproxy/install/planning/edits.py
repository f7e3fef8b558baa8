"""Pure: changes of one setting in texts that others wrote, which leave every other byte as it is."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

ENDPOINT_KEY = "containerRuntimeEndpoint"
FLAG = "container-runtime-endpoint"
_QUOTES = frozenset("\"'")


class CannotEdit(Exception):
    """A text in which the setting has to be changed by hand; says why."""


def with_flag(text: str, variable: str, flag: str, value: str | None) -> str:
    """Return an environment file in which *variable* has the flag ``--flag=value``, or with None does not have it.

    Raises:
        CannotEdit: the variable is written over several lines, or its quotes are not around the whole value.
    """
    lines = text.splitlines(keepends=True)
    places = [number for number in _beginnings(lines) if re.match(rf"\s*{variable}\s*=", lines[number])]
    if not places:
        return text if value is None else f'{_ended(text)}{variable}="--{flag}={value}"\n'
    line = lines[places[-1]]
    if line.rstrip("\r\n").endswith("\\"):
        raise CannotEdit(f"{variable} is written over several lines")
    parts = re.fullmatch(r"(\s*\w+\s*=[ \t]*)(.*?)\s*", line, re.DOTALL)
    assert parts is not None  # the line was found by its beginning
    head, old = parts.groups()
    quote = _quote_around(variable, old)
    new = command_with_flag(old[1:-1] if quote else old, flag, value)
    quote = quote or ('"' if " " in new or not old else "")
    lines[places[-1]] = f"{head}{quote}{new}{quote}\n"
    return "".join(lines)


def _beginnings(lines: list[str]) -> Iterator[int]:
    """Yield the numbers of the lines that are not within a quoted value of an earlier line, as systemd reads them.

    Raises:
        CannotEdit: nothing closes a quote, so that whatever follows would belong to that value.
    """
    number = 0
    while number < len(lines):
        yield number
        begun, value = number, lines[number].partition("=")[2].strip()
        if value[:1] in _QUOTES and not lines[number].lstrip().startswith(("#", ";")):
            rest, quote = value[1:], value[0]
            while _closing(rest, quote) is None:
                number += 1
                if number == len(lines):
                    raise CannotEdit(f"nothing closes the quote in line {begun + 1}")
                rest = lines[number]
        number += 1


def _quote_around(variable: str, value: str) -> str:
    """Return the quote around the whole *value*; empty if it has none. Raise CannotEdit for other quoted values."""
    if value[:1] not in _QUOTES:
        return ""
    closing = _closing(value[1:], value[0])
    if closing is None:
        raise CannotEdit(f"{variable} is written over several lines")
    if closing != len(value) - 2:
        raise CannotEdit(f"{variable} has text after its closing quote")
    return value[0]


def _closing(text: str, quote: str) -> int | None:
    """Return where *quote* ends *text*; None if it does not. A backslash protects the next character in double ones."""
    inside = r"(?:[^\"\\]|\\.)*" if quote == '"' else r"[^']*"
    found = re.match(rf"{inside}{quote}", text, re.DOTALL)
    return found.end() - 1 if found else None


def command_with_flag(command: str, flag: str, value: str | None) -> str:
    """Return a command line that ends with ``--flag=value``, or with None has no such flag."""
    rest = re.sub(rf"(?:^|(?<=\s))--{re.escape(flag)}(?:=|\s+)(?:\"[^\"]*\"|'[^']*'|\S+)\s*", "", command).rstrip()
    return rest if value is None else f"{rest} --{flag}={value}".lstrip()


def with_key(text: str, key: str, value: str | None) -> str:
    """Return a YAML mapping in which the top-level *key* has *value*, or with None does not exist.

    Raises:
        CannotEdit: this text is no such mapping, or is written in another way.
    """
    before = mapping(text)
    line = rf"^{re.escape(key)}[ \t]*:.*\n?"
    new = "" if value is None else f"{key}: {value}\n"
    if re.search(line, text, re.MULTILINE):
        after = re.sub(line, lambda _: new, text, count=1, flags=re.MULTILINE)
    else:
        after = f"{_ended(text)}{new}"
    wanted = {name: each for name, each in before.items() if name != key} | ({} if value is None else {key: value})
    if mapping(after) != wanted:
        raise CannotEdit(f"{key} cannot be changed in the way in which the file is written")
    return after


def mapping(text: str) -> dict[str, Any]:
    """Return the mapping in the only document of *text*, which is YAML or JSON; documents without content may follow.

    Raises:
        CannotEdit: it is something else.
    """
    try:
        documents = [*yaml.safe_load_all(text)]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        documents = _json(text)
        if not documents:
            raise CannotEdit(f"it is not valid YAML: {' '.join(str(error).split())}") from error
    data = documents[0] if documents else None
    if any(document is not None for document in documents[1:]):
        raise CannotEdit("it has several documents")
    if not isinstance(data, dict | None):
        raise CannotEdit("it is not a YAML mapping")
    return data or {}


def _json(text: str) -> list[Any]:
    """Return the JSON value *text*; nothing if it is none. Our YAML library refuses JSON that is indented with tabs."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return []


def quoted(word: str) -> str:
    """Return *word* for a command line of a unit."""
    return shlex.quote(word)


def _ended(text: str) -> str:
    """Return *text* with an end of its last line."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def taken_back(setting: str, before: str, now: str) -> str:
    """Return *now* with our setting as the text had it *before*, and all else as it is.

    Args:
        setting: ``VARIABLE --flag`` of an environment file, or a key of a YAML file.
        before: the text before our change; empty if the file did not exist.
        now: the text with our change and others.

    Raises:
        CannotEdit: somebody has to do it by hand.
    """
    variable, _, flag_name = setting.partition(" --")
    if flag_name:
        from criproxy.install.planning.unit_file import environment_of, flag

        words = environment_of(before).get(variable, "").split()
        return with_flag(now, variable, flag_name, flag(words, flag_name))
    return with_key(now, setting, mapping(before).get(setting))
