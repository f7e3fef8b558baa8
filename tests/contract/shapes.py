"""Which keys and types JSON has: a small language for tables, and what differs from one.

A shape is a type or None; a tuple of shapes of which one fits; a list with the shape of its items; or a dictionary with
the shape of each key. A key that ends in ``?`` may be missing, and the only key `EACH` stands for any names. What is to
be a float may be a whole number.
"""

from collections.abc import Iterator
from typing import Any

EACH = "*"


def differences(value: object, shape: Any, place: str = "$") -> list[str]:  # noqa: ANN401 (a shape is recursive)
    """Return what in *value* is not as *shape* says, each with its place."""
    if isinstance(shape, tuple):
        found = [differences(value, each, place) for each in shape if _is_like(value, each)]
        return min(found, key=len, default=[f"{place} is {value!r:.80}, and must be {_name(shape)}"])
    if not _is_like(value, shape):
        return [f"{place} is {value!r:.80}, and must be {_name(shape)}"]
    if isinstance(shape, list) and isinstance(value, list):
        return [text for index, each in enumerate(value) for text in differences(each, shape[0], f"{place}[{index}]")]
    return [*_of_keys(value, shape, place)] if isinstance(shape, dict) and isinstance(value, dict) else []


def _of_keys(value: dict[str, object], shape: dict[str, Any], place: str) -> Iterator[str]:
    if EACH in shape:
        shape = dict.fromkeys(value, shape[EACH])
    known = {key.removesuffix("?"): (inner, key.endswith("?")) for key, inner in shape.items()}
    for key, (inner, may_be_missing) in known.items():
        if key in value:
            yield from differences(value[key], inner, f"{place}.{key}")
        elif not may_be_missing:
            yield f"{place}.{key} is missing"
    for key in value.keys() - known.keys():
        yield f"{place}.{key} is new: add it to the table of this suite ({value[key]!r:.80})"


def _is_like(value: object, shape: Any) -> bool:  # noqa: ANN401
    """Whether *value* is of the type that *shape* begins with."""
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if shape is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if shape is None or isinstance(shape, list | dict):
        return isinstance(value, type(shape))
    return any(_is_like(value, each) for each in shape) if isinstance(shape, tuple) else isinstance(value, shape)


def _name(shape: Any) -> str:  # noqa: ANN401
    if isinstance(shape, tuple):
        return " or ".join(map(_name, shape))
    return {list: "a list", dict: "an object", type(None): "null"}.get(type(shape), getattr(shape, "__name__", ""))
