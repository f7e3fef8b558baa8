"""Commands that take back what they have begun when a signal ends them."""

import os
import signal
from collections.abc import Iterator

import pytest

from criproxy.cli.repeated_output import leaving_on


@pytest.fixture
def ignored() -> Iterator[None]:
    """Let this process ignore SIGHUP, as one that nohup starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_signal_ends_the_command() -> None:
    """With the exit status of other programs, and only within it."""
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(SystemExit, match="129"), leaving_on(signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), signal.SIGHUP)

    assert signal.getsignal(signal.SIGHUP) is before


def test_a_signal_that_is_ignored_from_the_start_ends_nothing(ignored: None) -> None:
    """An installation under nohup goes on when the terminal is closed."""
    with leaving_on(signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), signal.SIGHUP)

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
