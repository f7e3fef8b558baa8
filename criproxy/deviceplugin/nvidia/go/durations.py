"""Go's durations: parsed from texts such as ``1h2m3.5s``, and formatted as Go does."""

import re
from typing import Literal

from criproxy.deviceplugin.nvidia.go.numbers import INT64

Duration = int | Literal["infinite"]
"""In nanoseconds, or infinite."""
INFINITE: Literal["infinite"] = "infinite"

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]*)(\.([0-9]*))?([^0-9.]*)", re.ASCII)
_MAX_CHARS = 200
_MAX_FRACTION = 18
"""Digits after the point that count."""


def parse_duration(text: str) -> Duration:
    """Parse *text* as NVIDIA's ``sleepInterval``.

    Raises:
        ValueError: The text is invalid; the message is Go's.
    """
    if text == INFINITE:
        return INFINITE
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest or len(rest) > _MAX_CHARS:
        raise ValueError(_invalid(text))
    total = 0
    for part in _parts(rest, text):
        total += part
    signed = -total if text.startswith("-") else total
    if signed not in INT64:
        raise ValueError(_invalid(text))
    return signed


def _parts(rest: str, text: str) -> list[int]:
    """Return the nanoseconds of each number with its unit."""
    parts = []
    while rest:
        match = _PART.match(rest)
        assert match is not None, "it matches the empty text"
        integer, point, after, unit = match.groups()
        if not integer and not after:
            raise ValueError(_invalid(text))
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _UNITS_NS:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        parts.append(int(integer or "0") * _UNITS_NS[unit] + _fraction_ns(after if point else "", _UNITS_NS[unit]))
        rest = rest[match.end() :]
    return parts


def _fraction_ns(digits: str | None, unit_ns: int) -> int:
    """Return the fraction with the *digits* after the point, in whole nanoseconds; in floating point, as Go does."""
    digits = (digits or "0")[:_MAX_FRACTION]
    return int(float(int(digits)) * (unit_ns / 10 ** len(digits)))


def _invalid(text: str) -> str:
    return f'time: invalid duration "{text}"'
