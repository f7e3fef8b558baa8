"""Pauses between tries."""

from criproxy.process.tasks import Backoff


def test_pauses_double() -> None:
    """From the first to the longest, each up to a fifth shorter, and again from the first after a success."""
    backoff = Backoff(1.0, 30.0)
    whole = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]

    found = [backoff.pause_s() for _ in whole]
    backoff.reset()

    assert all(
        0.8 * most <= pause <= most for pause, most in zip([*found, backoff.pause_s()], [*whole, 1.0], strict=True)
    )
