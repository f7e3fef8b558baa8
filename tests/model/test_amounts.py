"""Amounts read as people write them."""

import pytest

from criproxy.model.amounts import format_bytes, format_interval, format_milli
from criproxy.model.resources import Interval


@pytest.mark.parametrize(
    ("cpu_milli", "expected"), [(0, "0m"), (2, "2m"), (250, "250m"), (1000, "1"), (1500, "1500m"), (256_000, "256")]
)
def test_milli(cpu_milli: int, expected: str) -> None:
    """Whole CPUs without a unit, everything else in milli-CPU."""
    assert format_milli(cpu_milli) == expected


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (64 << 20, "64 MiB"),
        (1_500_000_000, "1.4 GiB"),
        (3 << 29, "1.5 GiB"),
        (188 << 30, "188 GiB"),
        (5 << 62, "20480 PiB"),
    ],
)
def test_bytes(size_bytes: int, expected: str) -> None:
    """The largest unit that leaves at least one, and three digits that matter."""
    assert format_bytes(size_bytes) == expected


def test_intervals() -> None:
    """Two ends where they read differently, else one amount."""
    assert format_interval(Interval(0, 2), format_milli) == "0m to 2m"
    assert format_interval(Interval(1 << 30, (1 << 30) + 1), format_bytes) == "1 GiB"
