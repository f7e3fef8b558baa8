"""Numbers are read and written in Go's forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.go.numbers import decimal, fraction, integer, json_number, shortest, whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("-0", 0, id="minus-zero"),
        pytest.param("0x", None, id="prefix-alone"),
        pytest.param("0X1f", 31, id="hexadecimal"),
        pytest.param("0O17", 15, id="octal"),
        pytest.param("0017", 15, id="old-octal"),
        pytest.param("09", None, id="no-octal"),
        pytest.param("0B11", 3, id="binary"),
        pytest.param("9223372036854775807", 2**63 - 1, id="largest-signed"),
        pytest.param("+9223372036854775808", None, id="signed-beyond"),
        pytest.param("9223372036854775808", 2**63, id="unsigned"),
        pytest.param("-9223372036854775809", None, id="below-the-least"),
        pytest.param("1.0", None, id="float"),
        pytest.param("\u0661", None, id="digit-of-another-script"),
        pytest.param("1" * 5000, None, id="long"),
    ],
)
def test_integers_have_any_of_the_notations_of_go(text: str, expected: int | None) -> None:
    """Bases by their prefix, and no more than 64 bits."""
    assert integer(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(2.0, 2, id="whole-float"),
        pytest.param(-0.0, 0, id="minus-zero"),
        pytest.param(1e18, 10**18, id="large"),
        pytest.param(1e21, None, id="written-with-an-exponent"),
        pytest.param(2.5, None, id="fraction"),
        pytest.param(True, None, id="bool"),
        pytest.param("2", None, id="text"),
        pytest.param(None, None, id="null"),
    ],
)
def test_a_whole_number_is_one_that_json_writes_without_a_point(value: object, expected: int | None) -> None:
    """2.0 counts as a whole number, 1e21 does not."""
    assert whole(value) == expected


@pytest.mark.parametrize(
    ("value", "in_json", "in_text"),
    [
        pytest.param(7, "7", "7", id="integer"),
        pytest.param(1.5, "1.5", "1.5", id="fraction"),
        pytest.param(-0.0, "-0", "-0", id="minus-zero"),
        pytest.param(100000.0, "100000", "100000", id="five-zeros"),
        pytest.param(1e6, "1000000", "1e+06", id="six-zeros"),
        pytest.param(123456789.0, "123456789", "1.23456789e+08", id="many-digits"),
        pytest.param(1e20, "100000000000000000000", "1e+20", id="last-without-exponent-in-json"),
        pytest.param(-1.25e21, "-1.25e+21", "-1.25e+21", id="exponent"),
        pytest.param(0.0001, "0.0001", "0.0001", id="small"),
        pytest.param(0.00001, "0.00001", "1e-05", id="smaller"),
        pytest.param(1e-7, "1e-7", "1e-07", id="exponent-of-one-digit"),
        pytest.param(5e-324, "5e-324", "5e-324", id="least"),
    ],
)
def test_numbers_are_written_as_go_writes_them(value: float, in_json: str, in_text: str) -> None:
    """JSON writes an exponent later than Go's shortest format does."""
    assert json_number(value) == in_json
    assert shortest(value) == in_text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_the_number(value: float) -> None:
    """Both forms are read back as the same number."""
    assert float(json_number(value)) == value
    assert float(shortest(value)) == value


@given(st.integers(-(2**63), 2**64 - 1))
def test_every_integer_of_64_bits_is_read(value: int) -> None:
    """In each base, with its sign."""
    assert integer(str(value)) == value
    assert integer(f"{'-' if value < 0 else ''}{abs(value):#x}") == value


@given(st.text(max_size=10))
def test_only_digits_are_an_index(text: str) -> None:
    """An index has no sign, no prefix and no blank."""
    assert (decimal(text) is not None) == (text != "" and all(char in "0123456789" for char in text))
    assert fraction(text) is None or float(text) == fraction(text)
