"""Conversion of model values and events to JSON values and back, for traces.

Sets of ids are texts in kernel notation, enumerations their values, and fields with their defaults are omitted.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset

T = TypeVar("T")

_JSON = frozenset({str, int, float, bool, NoneType})
"""What JSON has itself; looked up first, since most values are of these types."""


def to_plain(value: Any) -> Any:  # noqa: ANN401 (any value in the model)
    """Convert *value* to dicts, lists, texts and numbers."""
    if type(value) in _JSON:
        return value
    if isinstance(value, Enum | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, frozenset):
        return format_cpuset(value)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    given = ((name, default, getattr(value, name)) for name, default in _defaults(value.__class__))
    return {name: to_plain(item) for name, default, item in given if item != default}


def from_plain(kind: type[T], data: Any) -> T:  # noqa: ANN401 (any JSON value)
    """Convert *data* to a value of the class *kind*; unknown entries are ignored.

    Raises:
        ValueError: *data* is invalid; the text names the part.
    """
    value: T = _read(kind, data, kind.__name__)
    return value


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the names of the fields of a dataclass, and their defaults; `MISSING` for a field without one."""
    known = (field for field in fields(kind) if field.init)
    return tuple((field.name, _default(field)) for field in known)


def _default(field: "Field[Any]") -> Any:  # noqa: ANN401
    return field.default if field.default_factory is MISSING else field.default_factory()


def _read(kind: Any, data: Any, where: str) -> Any:  # noqa: ANN401, PLR0911 (a kind of value each)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # in the model these are optional values only
        if data is None and NoneType in arguments:
            return None
        return _read(next(each for each in arguments if each is not NoneType), data, where)
    if kind == CpuSet:
        return _ids(data, where)
    if origin is tuple:
        _expect(data, list, where)
        kinds = arguments if Ellipsis not in arguments else arguments[:1] * len(data)
        if len(kinds) != len(data):
            raise ValueError(f"{where} must have {len(kinds)} values, not {len(data)}")
        return tuple(_read(kinds[number], item, f"{where}[{number}]") for number, item in enumerate(data))
    if origin is not None:
        _expect(data, dict, where)
        return {str(key): _read(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if is_dataclass(kind):
        return _dataclass(kind, data, where)
    if issubclass(kind, Enum):
        return _one_of(kind, data, where)
    wanted = (int, float) if kind is float else kind
    if not isinstance(data, wanted) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{where} must be of the kind {kind.__name__}, not {data!r:.60}")
    return data


def _dataclass(kind: Any, data: Any, where: str) -> Any:  # noqa: ANN401
    _expect(data, dict, where)
    hints = _hints(kind)
    known = [field for field in fields(kind) if field.init]
    for field in known:
        if field.name not in data and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**{f.name: _read(hints[f.name], data[f.name], f"{where}.{f.name}") for f in known if f.name in data})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _ids(data: object, where: str) -> CpuSet:
    _expect(data, str, where)
    try:
        return parse_cpuset(str(data))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _one_of(kind: type[Enum], data: object, where: str) -> Enum:
    try:
        return kind(data)
    except ValueError:
        words = ", ".join(str(each.value) for each in kind)
        raise ValueError(f"{where} must be one of {words}, not {data!r:.60}") from None


def _expect(data: object, kind: type, where: str) -> None:
    if not isinstance(data, kind):
        raise ValueError(f"{where} must be a {kind.__name__}, not {data!r:.60}")  # noqa: TRY004 (it is data)
