"""Tens of thousands of calls and hundreds of random lives, in memory between strict endpoints."""

import pytest

from tests.wire import checks

MANY = 20_000


@pytest.mark.slow
def test_twenty_thousand_refusals() -> None:
    """Header tables stay in step, each window is returned, Version answers throughout."""
    checks.refusals(MANY)


@pytest.mark.slow
def test_twenty_thousand_cancels() -> None:
    """The same for calls that are cancelled while they are held."""
    checks.cancels(MANY)


def test_calls_leave_nothing_behind() -> None:
    """Beside the remembered numbers of refused streams, as many objects exist after many calls as before."""
    assert checks.kept_objects(2_000) < 100


def test_random_lives() -> None:
    """The same lives in every run; `test_splice_properties` has new ones."""
    checks.lives(150)


@pytest.mark.parametrize("check", [checks.long_message, checks.split_headers, checks.grown_reply])
def test_check(check: "checks.Check") -> None:
    """What the planted mistakes break works without them."""
    check()
