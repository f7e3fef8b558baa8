"""Which of two versions is older."""

import pytest

from criproxy.model.text.notices import difference


@pytest.mark.parametrize(
    ("own", "other", "compared"),
    [
        ("0.1.0", "0.1.0", ""),
        ("0.1.0", "0.2.0", "newer"),
        ("0.10.0", "0.9.9", "older"),
        ("1.0", "1.0.1", "newer"),
        ("1.0", "1.0.0", "different"),
        ("1.0", "1.0rc1", "different"),
        ("1.0", "0.9rc1", "older"),
        ("1.0", "", ""),
        ("1.0", "trunk", "different"),
        ("1.0", "1" * 5000, "newer"),
    ],
)
def test_difference(own: str, other: str, compared: str) -> None:
    """Numbers decide; whoever cannot be compared is only different."""
    assert difference(own, other) == compared
