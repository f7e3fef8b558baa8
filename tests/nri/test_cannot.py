"""Tests make exceptions for NRI only where its page says so."""

from tests.nri import cannot


def test_the_exceptions_are_those_of_the_page() -> None:
    """A feature that NRI learns, or that turns out to be missing, is a row there first."""
    named = {value for name, value in vars(cannot).items() if name.isupper() and isinstance(value, str)}
    assert named == cannot.table().keys()
