"""Limits of the HTTP API, by a clock that the test turns."""

from collections.abc import Callable

import pytest

from criproxy.process.http_limits import MOST_PEERS, Bucket, Rendered, Shares, peer_at


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


def test_each_client_has_its_share() -> None:
    """One that asks too often keeps no other from being answered, and all together have a limit, too."""
    clock = Clock()
    shares = Shares(per_s=1, burst=4, all_per_s=2, all_burst=6, now=clock)
    assert [shares.take("flood") for _ in range(9)] == [True] * 4 + [False] * 5
    assert [shares.take("other") for _ in range(3)] == [True, True, False]
    clock.now_s += 1
    assert [shares.take(each) for each in ("flood", "flood", "other", "third")] == [True, False, True, False]


def test_clients_that_are_forgotten_get_no_more_together() -> None:
    """However many there are: only the newest are known."""
    shares = Shares(per_s=1, burst=1, all_per_s=1, all_burst=1000, now=Clock())
    assert sum(shares.take(f"{number}") for number in range(2000)) == 1000
    assert len(shares) <= MOST_PEERS


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        pytest.param("127.0.0.1", "loopback", id="loopback"),
        pytest.param("127.8.9.1", "loopback", id="another name of loopback"),
        pytest.param("::1", "loopback", id="loopback of IPv6"),
        pytest.param("::ffff:10.0.0.1", "10.0.0.1", id="IPv4 in IPv6"),
        pytest.param("fe80::1%eth0", "fe80::/64", id="scope"),
        pytest.param("2001:db8::1:2", "2001:db8::/64", id="a host has a whole network"),
    ],
)
def test_who_asks(address: str, peer: str) -> None:
    """A client with many addresses is one client."""
    assert peer_at(address) == peer


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
