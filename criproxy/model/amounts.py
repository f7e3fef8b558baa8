"""Amounts as people write them: 250m, 2 CPUs, 1.5 GiB."""

from collections.abc import Callable

from criproxy.model.resources import Interval

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def format_milli(cpu_milli: int) -> str:
    """Milli-CPU as in a pod's resources, such as ``250m`` and ``2``."""
    whole, rest = divmod(cpu_milli, 1000)
    return f"{cpu_milli}m" if rest or not whole else f"{whole}"


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
