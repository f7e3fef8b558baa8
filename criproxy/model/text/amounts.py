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
    """Format milli-CPU as in a pod's resources, such as ``250m`` and ``2``."""
    whole, rest = divmod(cpu_milli, 1000)
    return f"{cpu_milli}m" if rest or not whole else f"{whole}"


def counted(count: int, noun: str) -> str:
    """``1 CPU``, ``2 isolated CPUs``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def are(count: int) -> str:
    """The verb after a number of things."""
    return "is" if count == 1 else "are"


def only_are(count: int) -> str:
    """How many of what was asked for there are, with the verb, after "but"."""
    return f"only {count} {are(count)}" if count else "none is"


def format_bytes(size_bytes: int) -> str:
    """Format bytes with a binary unit and at most three significant digits, such as ``64 MiB`` and ``1.5 GiB``."""
    value, unit = float(size_bytes), "B"
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.3g} {unit}"


def format_interval(amount: Interval, one: Callable[[int], str]) -> str:
    """Format an interval, each end with *one*; only once if both texts are equal."""
    low, high = one(amount.low), one(amount.high)
    return low if low == high else f"{low} to {high}"


def format_seconds(time_s: float) -> str:
    """Format a duration with the two largest units that it has, such as ``3 h 12 min``."""
    passed_s = int(time_s)
    for size_s, unit, small_s, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if passed_s >= size_s:
            rest = passed_s % size_s // small_s
            return f"{passed_s // size_s} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{passed_s} s"


def parse_milli(text: str) -> int:
    """Parse CPU as in a pod's resources, such as ``250m``, ``2`` and ``1.5``, to milli-CPU, rounded up.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[3] not in {None, "m"}:
        raise ValueError(f"{text!r} must be an amount of CPU such as 250m, 2 or 1.5")
    whole, fraction, unit = found.groups(default="")
    return _scaled(whole, fraction, 1 if unit else 1000)


def parse_bytes(text: str) -> int:
    """Parse memory as in a pod's resources, such as ``64Mi`` (2^20) and ``100M`` (10^6), to bytes, rounded up.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[3] == "m":
        raise ValueError(f"{text!r} must be a size such as 64Mi, 100M or 1048576 (bytes)")
    whole, fraction, unit = found.groups(default="")
    return _scaled(whole, fraction, (1024 if unit.endswith("i") else 1000) ** _POWERS[unit.removesuffix("i")])


def parse_seconds(text: str, examples: str = "500ms, 11s, 2m or 168h") -> float:
    """Parse a duration with its unit, such as ``500ms``, ``11s`` and ``1.5h``, to seconds.

    Raises:
        ValueError: it is none; the text has *examples* of what may stand there.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} must be a duration such as {examples}: a number and a unit (ms, s, m or h)")
    return float(found[1]) * _SECONDS[found[2]]


def _scaled(whole: str, fraction: str, factor: int) -> int:
    """Return the exact product, rounded up."""
    parts = int(whole + fraction) * factor
    divisor: int = 10 ** len(fraction)
    return -(-parts // divisor)
