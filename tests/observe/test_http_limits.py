"""Limits of the HTTP API, by a clock that the test turns."""

from collections.abc import Callable

from criproxy.observe.http_limits import Bucket, Rendered


class Clock:
    """Says what the test says."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """In seconds."""
        return self.now_s


def test_a_bucket_gives_a_burst_and_then_so_many_a_second() -> None:
    """Tokens come back with time, and never more than the burst."""
    clock = Clock()
    bucket = Bucket(per_s=2, burst=3, now=clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now_s += 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    clock.now_s += 1000
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_who_reserves_waits_for_the_token() -> None:
    """Each token that is not there yet comes later than the one before."""
    clock = Clock()
    bucket = Bucket(per_s=2, burst=1, now=clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.5, 1.0]
    clock.now_s += 1.5
    assert bucket.reserve() == 0.0


def _counting() -> Callable[[str], tuple[bytes, str]]:
    texts = iter(range(100))
    return lambda accept: (f"{accept}{next(texts)}".encode(), "text/plain")


def test_metrics_are_rendered_for_each_request_that_is_not_one_of_too_many() -> None:
    """Beyond the rate the last text serves for all, whatever they accept."""
    clock = Clock()
    rendered = Rendered(_counting(), Bucket(per_s=1, burst=2, now=clock))
    assert [rendered(each)[0] for each in "abcd"] == [b"a0", b"b1", b"b1", b"b1"]
    clock.now_s += 1
    assert rendered("e")[0] == b"e2"
