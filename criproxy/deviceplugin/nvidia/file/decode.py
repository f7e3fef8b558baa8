"""Decodes values of the file into values of Go's types, as Go's JSON decoder does.

A key matches a field of a struct regardless of case; unknown keys are ignored. Keys are decoded in the order of their
bytes. Each function raises `WrongTypeError` for a value of another type. Of several mistakes, Go's decoder reports the
first one that NVIDIA's own types detect, and only without any of these the first wrong type.
"""

import json
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from criproxy.deviceplugin.nvidia.go.config_error import MAX_QUOTED, PluginConfigError, WrongTypeError
from criproxy.deviceplugin.nvidia.go.numbers import INT64, json_number, whole
from criproxy.deviceplugin.nvidia.go.yaml_like_go import Value

Decoder = Callable[[Value, str], Any]
"""Decodes a value that is not null; the text is the path of its key."""

_HTML = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_FOLDED = str.maketrans({"\u017f": "s", "\u212a": "k"} | {chr(65 + at): chr(97 + at) for at in range(26)})


def fields_of(
    value: Value, where: str, fields: Mapping[str, Decoder], even_null: Container[str] = ()
) -> dict[str, Any]:
    """Return the *fields* of a struct that *value* sets, by name.

    A field that is null counts as not set, unless it is in *even_null*: then its decoder is called.
    """
    by_folded = {name.translate(_FOLDED): name for name in fields}
    found: dict[str, Any] = {}
    first: WrongTypeError | None = None
    for key, item in sorted_items(mapping(value, where)):
        name = by_folded.get(key.translate(_FOLDED))
        if name is None:
            continue
        if item.data is None and name not in even_null:
            found.pop(name, None)
            continue
        try:
            decoded = fields[name](item, joined(where, name))
        except WrongTypeError as error:
            first = first or error
            continue
        both = isinstance(decoded, dict) and isinstance(found.get(name), dict)
        found[name] = found[name] | decoded if both else decoded
    if first is not None:
        raise first
    return found


def fail_fast(decoder: Decoder) -> Decoder:
    """Return the *decoder* of one of NVIDIA's own types: any mistake in its value ends the decoding of the file."""

    def decode(value: Value, where: str) -> Any:  # noqa: ANN401 (the type of the decoder's result)
        try:
            return decoder(value, where)
        except WrongTypeError as error:
            raise PluginConfigError(
                error.text, mistake_class="type", line=error.line, where=error.where, advice=error.advice
            ) from None

    return decode


def sorted_items(data: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Return keys and values in the order in which Go decodes them."""
    return iter(sorted(data.items(), key=lambda item: item[0].encode(errors="surrogatepass")))


def mapping(value: Value, where: str) -> dict[str, Value]:
    """Return the keys and values of *value*; an empty mapping for null."""
    if value.data is None:
        return {}
    if not isinstance(value.data, dict):
        raise wrong_type(value, where, "a mapping of keys to values")
    return value.data


def items_of(value: Value, where: str) -> list[Value]:
    """Return the items of *value*; an empty list for null."""
    if value.data is None:
        return []
    if not isinstance(value.data, list):
        raise wrong_type(value, where, "a list")
    return value.data


def text(value: Value, where: str) -> str:
    """Return *value* as a text; an empty one for null."""
    if value.data is None:
        return ""
    if not isinstance(value.data, str):
        raise wrong_type(value, where, "a text; put it in quotes")
    return value.data


def flag(value: Value, where: str) -> bool:
    """Return *value* as a boolean; False for null."""
    if value.data is None:
        return False
    if not isinstance(value.data, bool):
        raise wrong_type(value, where, "true or false, without quotes")
    return value.data


def integer(value: Value, where: str) -> int:
    """Return *value* as an integer; 0 for null."""
    number = 0 if value.data is None else whole(value.data)
    if number is None or number not in INT64:
        raise wrong_type(value, where, "a whole number, without quotes")
    return number


def named(check: Callable[[str], str], value: Value, where: str) -> str:
    """Return the name that *check* makes of *value*."""
    try:
        return check(text(value, where))
    except ValueError as error:
        raise PluginConfigError(str(error), line=value.line, where=where) from None


def wrong_type(value: Value, where: str, right: str) -> WrongTypeError:
    """Return the error about a *value* of the wrong type; *right* describes a valid value."""
    quoted = json_text(value)
    shown = quoted if len(quoted) <= MAX_QUOTED else f"{quoted[:MAX_QUOTED]}…"
    return WrongTypeError(
        f"cannot be {shown}", mistake_class="type", line=value.line, where=where or "the file", advice=f"write {right}"
    )


def joined(where: str, name: str) -> str:
    """Return the path of the key *name* below *where*."""
    return f"{where}.{name}" if where else name


def json_text(value: Value) -> str:
    """Return *value* as Go's JSON: keys in the order of their bytes, no blanks."""
    match value.data:
        case None:
            return "null"
        case bool():
            return "true" if value.data else "false"
        case str():
            return _json_string(value.data)
        case list():
            return f"[{','.join(map(json_text, value.data))}]"
        case dict():
            pairs = (f"{_json_string(key)}:{json_text(item)}" for key, item in sorted_items(value.data))
            return f"{{{','.join(pairs)}}}"
    return json_number(value.data)


def _json_string(string: str) -> str:
    return "".join(_HTML.get(char, char) for char in json.dumps(string, ensure_ascii=False))
