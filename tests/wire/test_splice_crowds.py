"""Thousands of calls and hundreds of random lives, in memory between strict endpoints."""

import pytest

from tests.wire import checks

pytestmark = pytest.mark.slow
many = pytest.mark.parametrize("count", [1_400, pytest.param(20_000, marks=pytest.mark.thorough)])


@many
def test_thousands_of_refusals(count: int) -> None:
    """Header tables stay in step, each window is returned, Version answers throughout.

    Beside the remembered numbers of refused streams, as many objects exist after many calls as before.
    """
    assert checks.refusals(count) < 100


@many
def test_thousands_of_cancels(count: int) -> None:
    """The same for calls that are cancelled while they are held."""
    checks.cancels(count)


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.thorough)])
def test_random_lives(count: int) -> None:
    """The same lives in every run; `test_splice_properties` has new ones."""
    checks.lives(count)


@pytest.mark.parametrize("check", [checks.long_message, checks.split_headers, checks.grown_reply])
def test_check(check: "checks.Check") -> None:
    """What the planted mistakes break works without them."""
    check()
