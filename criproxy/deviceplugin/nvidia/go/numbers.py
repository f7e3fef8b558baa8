"""Numbers as Go parses and formats them: in YAML, in JSON and in texts."""

import re
from decimal import Decimal

INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)
_MAX_CHARS = 70
"""No integer of 64 bits is longer, in any base."""

_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|[1-9][0-9]*|0)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_DECIMAL = re.compile(r"[0-9]+", re.ASCII)
_BASES = {"x": 16, "b": 2, "o": 8}


def integer(text: str) -> int | None:
    """Parse an integer of 64 bits in any of Go's notations; None if *text* is none."""
    if len(text) > _MAX_CHARS or not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("+-").lower()
    if digits[0] == "0" and len(digits) > 1:
        base = _BASES.get(digits[1], 8)
        value = int(digits.lstrip("0")[1:] if digits[1] in _BASES else digits, base)
    else:
        value = int(digits)
    value = -value if text.startswith("-") else value
    unsigned = text[0] not in "+-" and value in UINT64
    return value if value in INT64 or unsigned else None


def decimal(text: str) -> int | None:
    """Parse an unsigned integer of 64 bits, digits only; None if *text* is none."""
    if len(text) > _MAX_CHARS or not _DECIMAL.fullmatch(text):
        return None
    return int(text) if int(text) in UINT64 else None


def fraction(text: str) -> float | None:
    """Parse a floating-point number; None if *text* is none, or is too large for one."""
    if not _FLOAT.fullmatch(text):
        return None
    value = float(text)
    return value if abs(value) != float("inf") else None


def whole(value: object) -> int | None:
    """Return *value* as the integer that JSON makes of it, such as 2 for 2.0; None for exponents and anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(Decimal(repr(value)))
    return None


def json_number(value: float) -> str:
    """Format a number as Go does in JSON."""
    if isinstance(value, int):
        return str(value)
    digits, exponent = _digits(value)
    if value and not -6 <= exponent < 21:
        return f"{_with_point(value, digits)}e{'-' if exponent < 0 else '+'}{abs(exponent)}"
    return _plain(value)


def shortest(value: float) -> str:
    """Format a number with Go's format ``g``, which applies if YAML has a number in place of a text."""
    if isinstance(value, int):
        return str(value)
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value != value:  # noqa: PLR0124 (not a number)
        return "NaN"
    digits, exponent = _digits(value)
    if value and not -4 <= exponent < 6:
        return f"{_with_point(value, digits)}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    return _plain(value)


def _digits(value: float) -> tuple[str, int]:
    """Return the significant digits of *value*, and its power of ten."""
    number = Decimal(repr(value)).normalize().as_tuple()
    exponent = number.exponent if isinstance(number.exponent, int) else 0
    return "".join(map(str, number.digits)), exponent + len(number.digits) - 1


def _with_point(value: float, digits: str) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}" + (f".{digits[1:]}" if len(digits) > 1 else "")


def _plain(value: float) -> str:
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
