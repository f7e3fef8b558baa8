"""Amounts as people write them: 250m, 2 CPUs, 1.5 GiB."""

import re
from collections.abc import Callable

from criproxy.model.resources import Interval

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_QUANTITY = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?(m|[kKMGTP]i?)?")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def format_milli(cpu_milli: int) -> str:
    """Milli-CPU as in a pod's resources, such as ``250m`` and ``2``."""
    whole, rest = divmod(cpu_milli, 1000)
    return f"{cpu_milli}m" if rest or not whole else f"{whole}"


def counted(count: int, noun: str) -> str:
    """``1 CPU``, ``2 isolated CPUs``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def are(count: int) -> str:
    """The verb after a number of things."""
    return "is" if count == 1 else "are"


def format_bytes(size_bytes: int) -> str:
    """Bytes with a binary unit and at most three digits that matter, such as ``64 MiB`` and ``1.5 GiB``."""
    value, unit = float(size_bytes), "B"
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.3g} {unit}"


def format_interval(amount: Interval, one: Callable[[int], str]) -> str:
    """An amount that is only known to lie between two, each written by *one*; once where both read the same."""
    low, high = one(amount.low), one(amount.high)
    return low if low == high else f"{low} to {high}"


def parse_milli(text: str) -> int:
    """CPU as in a pod's resources, such as ``250m``, ``2`` and ``1.5``, in milli-CPU; parts of one round up.

    Raises:
        ValueError: it is none.
    """
    whole, fraction, unit = _quantity(text)
    if unit not in {"", "m"}:
        raise ValueError(f"{text!r} must be an amount of CPU such as 250m, 2 or 1.5")
    return _scaled(whole, fraction, 1 if unit else 1000)


def parse_bytes(text: str) -> int:
    """Memory as in a pod's resources, such as ``64Mi`` (2^20) and ``100M`` (10^6), in bytes; parts of one round up.

    Raises:
        ValueError: it is none.
    """
    whole, fraction, unit = _quantity(text)
    if unit == "m":
        raise ValueError(f"{text!r} must be an amount of memory such as 64Mi, 100M or 1048576")
    return _scaled(whole, fraction, (1024 if unit.endswith("i") else 1000) ** _POWERS[unit.removesuffix("i")])


def parse_seconds(text: str) -> float:
    """A duration with its unit, such as ``500ms``, ``11s`` and ``1.5h``, in seconds.

    Raises:
        ValueError: it is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} must be a duration such as 500ms, 11s or 2m")
    return float(found[1]) * _SECONDS[found[2]]


def _quantity(text: str) -> tuple[str, str, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} must be an amount such as 250m, 2, 1.5 or 64Mi")
    whole, fraction, unit = found.groups(default="")
    return whole, fraction, unit


def _scaled(whole: str, fraction: str, factor: int) -> int:
    """Exact, and never down: a bit more than a unit needs another one."""
    parts = int(whole + fraction) * factor
    divisor: int = 10 ** len(fraction)
    return -(-parts // divisor)
