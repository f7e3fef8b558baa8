"""Durations are read and written in Go's form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.go.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        pytest.param("0", 0, id="zero-needs-no-unit"),
        pytest.param("+0", 0, id="signed-zero"),
        pytest.param("60s", 60_000_000_000, id="seconds"),
        pytest.param("1h2m3.5s", 3_723_500_000_000, id="compound"),
        pytest.param("250ms", 250_000_000, id="milliseconds"),
        pytest.param("5\u00b5s", 5_000, id="micro-sign"),
        pytest.param("5\u03bcs", 5_000, id="greek-letter"),
        pytest.param("5us", 5_000, id="letter-u"),
        pytest.param("-1.5h", -5_400_000_000_000, id="negative"),
        pytest.param(".5s", 500_000_000, id="no-digit-before-the-point"),
        pytest.param("1.s", 1_000_000_000, id="no-digit-behind-the-point"),
        pytest.param("1s1s", 2_000_000_000, id="a-unit-twice"),
        pytest.param("0.3ns", 0, id="less-than-a-nanosecond"),
        pytest.param("2562047h47m16.854775807s", 2**63 - 1, id="longest"),
        pytest.param("infinite", "infinite", id="for-ever"),
    ],
)
def test_durations_are_read(text: str, nanoseconds: object) -> None:
    """A duration is a sequence of numbers with units, or `infinite`."""
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'time: invalid duration ""', id="empty"),
        pytest.param("s", 'time: invalid duration "s"', id="no-number"),
        pytest.param(".s", 'time: invalid duration ".s"', id="point-only"),
        pytest.param("-", 'time: invalid duration "-"', id="sign-only"),
        pytest.param("60", 'time: missing unit in duration "60"', id="no-unit"),
        pytest.param("1h30", 'time: missing unit in duration "1h30"', id="no-unit-last"),
        pytest.param("1d", 'time: unknown unit "d" in duration "1d"', id="days"),
        pytest.param("1 s", 'time: unknown unit " s" in duration "1 s"', id="blank"),
        pytest.param("Infinite", 'time: invalid duration "Infinite"', id="capital"),
        pytest.param("9999999h", 'time: invalid duration "9999999h"', id="too-long"),
    ],
)
def test_other_texts_are_refused_in_the_words_of_go(text: str, message: str) -> None:
    """The message says whether number or unit is wrong."""
    with pytest.raises(ValueError, match="time: ") as error:
        parse_duration(text)

    assert str(error.value) == message


@given(st.text("0123456789.+-hmsnuµd ", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else happens, whatever the text."""
    try:
        parse_duration(text)
    except ValueError as error:
        assert str(error).startswith("time: ")  # noqa: PT017 (either is fine)
