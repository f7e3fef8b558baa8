"""Settings of command line and environment, as NVIDIA's plugin reads them with Go's flag package and urfave/cli.

A variable that is set but empty stands for an empty text, for false, or for a list of one empty text; for numbers and
durations it counts as not set.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from criproxy.deviceplugin.nvidia.file.flags import FLAGS, Flag, Program
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.durations import parse_duration
from criproxy.deviceplugin.nvidia.go.numbers import INT64, integer

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_NO_EFFECT = frozenset(("help", "h", "version", "v"))
"""Flags that the library adds itself, and which set nothing."""

_VARIABLE_MESSAGES = {
    "bool": 'as bool value from environment variable "{}" for flag {}',
    "integers": 'as int slice value from environment variable "{}" for flag {}',
    "duration": 'from environment variable "{}" as value for flag {}',
}
"""Middle part of the message about a variable that cannot be parsed; the other kinds accept any text."""


def set_values(args: Sequence[str], env: Mapping[str, str], program: Program) -> dict[str, Any]:
    """Return the values that *args*, or else *env*, set for *program*, by the keys of the file.

    Raises:
        PluginConfigError: With the stage ``cli``.
    """
    flags = FLAGS[program]
    values = _from_variables(env, flags) | _from_arguments(args, flags)
    values.pop("", None)
    return values


def _from_variables(env: Mapping[str, str], flags: Sequence[Flag]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for flag in flags:
        name = next((name for name in flag.variables if name in env), None)
        if name is None:
            continue
        text = env[name]
        if not text and flag.kind in ("integers", "duration"):
            continue
        values[flag.key] = _from_variable(text, name, flag)
    return values


def _from_variable(text: str, name: str, flag: Flag) -> Any:  # noqa: ANN401 (the type depends on the flag)
    if not text and flag.kind == "bool":
        return False
    try:
        if flag.kind == "integers":
            return tuple(number for item in text.split(",") for number in _integers(item.strip()))
        return _PARSERS[flag.kind](text)
    except ValueError as error:
        raise _error(
            f'could not parse "{text}" {_VARIABLE_MESSAGES[flag.kind].format(name, flag.names[0])}: {error}'
        ) from None


def _from_arguments(args: Sequence[str], flags: Sequence[Flag]) -> dict[str, Any]:
    """Return what the flags in *args* set, up to the first argument that is not a flag."""
    by_name = {name: flag for flag in flags for name in flag.names}
    values: dict[str, Any] = {}
    used: set[str] = set()
    rest = list(args)
    while rest:
        argument = rest.pop(0)
        if argument == "--" or len(argument) < 2 or argument[0] != "-":
            break
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise _error(f"bad flag syntax: {argument}")
        if name in _NO_EFFECT and name not in by_name:
            continue
        if name not in by_name:
            raise _error(f"flag provided but not defined: -{name}")
        flag = by_name[name]
        used.add(name)
        if not equals and flag.kind != "bool":
            if not rest:
                raise _error(f"flag needs an argument: -{name}")
            text = rest.pop(0)
        value = _from_argument("true" if flag.kind == "bool" and not equals else text, name, flag)
        if flag.kind in ("texts", "integers") and flag.key in values and flag.key:
            value = values[flag.key] + value
        values[flag.key] = value
    for flag in flags:
        _check_single_name([name for name in flag.names if name in used])
    return values


def _check_single_name(used: Sequence[str]) -> None:
    if len(used) > 1:
        raise _error(f"Cannot use two forms of the same flag: {used[1]} {used[0]}")


def _from_argument(text: str, name: str, flag: Flag) -> Any:  # noqa: ANN401 (the type depends on the flag)
    try:
        return _PARSERS[flag.kind](text)
    except ValueError as error:
        if flag.kind == "bool":
            raise _error(f'invalid boolean value "{text}" for -{name}: parse error') from None
        raise _error(f'invalid value "{text}" for flag -{name}: {error}') from None


def _bool(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _texts(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(","))


def _integers(text: str) -> tuple[int, ...]:
    numbers = []
    for item in text.split(","):
        number = integer(item)
        if number is None or number not in INT64:
            raise ValueError(f'strconv.ParseInt: parsing "{item}": invalid syntax')
        numbers.append(number)
    return tuple(numbers)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "bool": _bool,
    "texts": _texts,
    "integers": _integers,
    "duration": parse_duration,
}


def _error(text: str) -> PluginConfigError:
    return PluginConfigError(text, mistake_class="cli", stage="cli")
