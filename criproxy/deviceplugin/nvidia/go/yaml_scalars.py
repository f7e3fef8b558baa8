"""Values of unquoted words of YAML in Go's YAML library, version 2: YAML 1.1 without base-60 numbers.

As in NVIDIA's plugin, ``no`` is false, ``012``, ``0o12`` and ``1_0`` are 10, ``1e1`` is 10, and ``1:0`` and
``2026-01-01`` are texts.
"""

import re

from criproxy.deviceplugin.nvidia.go.numbers import fraction, integer

_PREFIX = "tag:yaml.org,2002:"
TAG_BINARY = f"{_PREFIX}binary"

_INFINITY = float("inf")
_WORDS: dict[str, str | float | bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), _INFINITY),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -_INFINITY),
}
_FIRST = frozenset("+-.0123456789")
_LONE_UNDERSCORE = re.compile(r"(?<![0-9])_|_(?![0-9])", re.ASCII)
"""Not between two digits; invalid only in a number that begins with a point."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?", re.ASCII)


class WrongTagError(ValueError):
    """A value that does not match its tag."""


def plain_value(text: str) -> str | float | bool | None:
    """Return the value of the unquoted *text*."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _FIRST or (text[0] == "." and _LONE_UNDERSCORE.search(text)):
        return text
    digits = text.replace("_", "")
    found = integer(digits)
    if found is None:
        number = fraction(digits)
        return text if number is None else number
    return found


def tagged_value(tag: str, text: str) -> str | float | bool | None:
    """Return the value of *text*, quoted or not, with the full *tag* from the file.

    Raises:
        UnfitTagError: *text* is not of that type.
    """
    kind = tag.removeprefix(_PREFIX)
    if not tag.startswith(_PREFIX) or kind not in ("bool", "int", "float", "null", "timestamp"):
        return text
    value = plain_value(text)
    if kind == "float" and _kind(value) == "int":
        return float(value or 0)
    if kind == "timestamp" and _DATE.fullmatch(text):
        return text
    if kind != _kind(value):
        raise WrongTagError(f"cannot decode !!{_kind(value)} `{text}` as a !!{kind}")
    return value


def _kind(value: str | float | bool | None) -> str:
    if value is None:
        return "null"
    names: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (float, "float"))
    return next((name for type_, name in names if isinstance(value, type_)), "str")
