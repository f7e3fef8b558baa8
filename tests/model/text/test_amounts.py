"""Amounts read as people write them."""

import pytest

from criproxy.model.resources import Interval
from criproxy.model.text import amounts


@pytest.mark.parametrize(
    ("cpu_milli", "expected"), [(0, "0m"), (2, "2m"), (250, "250m"), (1000, "1"), (1500, "1500m"), (256_000, "256")]
)
def test_milli(cpu_milli: int, expected: str) -> None:
    """Whole CPUs without a unit, everything else in milli-CPU."""
    assert amounts.format_milli(cpu_milli) == expected


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
    assert amounts.format_bytes(size_bytes) == expected


def test_intervals() -> None:
    """Two ends where they read differently, else one amount."""
    assert amounts.format_interval(Interval(0, 2), amounts.format_milli) == "0m to 2m"
    assert amounts.format_interval(Interval(1 << 30, (1 << 30) + 1), amounts.format_bytes) == "1 GiB"


@pytest.mark.parametrize(
    ("text", "expected"), [("250m", 250), ("2", 2000), ("1.5", 1500), ("0.0001", 1), ("0", 0), ("0.5m", 1)]
)
def test_parse_milli(text: str, expected: int) -> None:
    """CPU as pods ask for it; parts of a milli-CPU round up."""
    assert expected == amounts.parse_milli(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("64Mi", 64 << 20), ("100M", 100_000_000), ("1.5Gi", 3 << 29), ("7", 7), ("1k", 1000)]
)
def test_parse_bytes(text: str, expected: int) -> None:
    """Memory as pods ask for it: binary units with an i."""
    assert expected == amounts.parse_bytes(text)


@pytest.mark.parametrize("text", ["", "m", "-1", "1e3", "1 Gi", "2.m", "1x"])
def test_no_amounts(text: str) -> None:
    """What is neither is an error that quotes it, with examples of what was wanted."""
    for parse, said in (
        (amounts.parse_milli, "must be an amount of CPU such as 250m, 2 or 1.5"),
        (amounts.parse_bytes, "must be a size such as 64Mi, 100M or 1048576 (bytes)"),
    ):
        with pytest.raises(ValueError, match="must be") as caught:
            parse(text)
        assert str(caught.value) == f"{text!r} {said}"


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("11s", 11.0), ("1.5h", 5400.0), ("168h", 604_800.0)])
def test_parse_seconds(text: str, expected: float) -> None:
    """Durations have a unit."""
    assert amounts.parse_seconds(text) == expected


@pytest.mark.parametrize("text", ["10", "1d", "7 days", "", "-1s"])
def test_no_durations(text: str) -> None:
    """The error names the units."""
    with pytest.raises(ValueError, match="must be") as caught:
        amounts.parse_seconds(text)
    said = "must be a duration such as 500ms, 11s, 2m or 168h: a number and a unit (ms, s, m or h)"
    assert str(caught.value) == f"{text!r} {said}"


@pytest.mark.parametrize(
    ("time_s", "expected"),
    [(0.9, "0 s"), (59, "59 s"), (900, "15 min"), (61, "1 min 1 s"), (11_520, "3 h 12 min"), (90_000, "1 d 1 h")],
)
def test_seconds(time_s: float, expected: str) -> None:
    """The two largest units."""
    assert amounts.format_seconds(time_s) == expected


def test_units_of_the_other_kind() -> None:
    """Memory is not in thousandths, CPU not in millions."""
    with pytest.raises(ValueError, match="'1Mi' must be an amount of CPU"):
        amounts.parse_milli("1Mi")
    with pytest.raises(ValueError, match="'1m' must be a size"):
        amounts.parse_bytes("1m")
