"""The load generator forgives no stall."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.benefit.programs import load

ANSWER = b"$1024\r\n" + b"x" * 1024 + b"\r\n"
TOGETHER = 20


@contextmanager
def stalled(requests: int) -> Iterator[int]:
    """A server that answers nothing before it has had *requests* requests, and then all of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, requests))
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def _serve(listener: socket.socket, requests: int) -> None:
    clients = [listener.accept()[0] for _ in range(load._CONNECTIONS)]
    had = 0
    for number in range(requests):
        client = clients[number % load._CONNECTIONS]
        had += client.recv(4096).count(b"GET")
    assert had == requests
    for number in range(requests):
        clients[number % load._CONNECTIONS].sendall(ANSWER)
    for client in clients:
        client.close()


def test_requests_do_not_wait_for_answers() -> None:
    """Those that were due during a stall are sent, and their latencies count from then."""
    due = [number / 1000 for number in range(TOGETHER)]
    with stalled(TOGETHER) as port:
        latencies, late = load.drive(port, due, random.Random(1))

    assert len(latencies) == len(late) == TOGETHER
    # The first one waited for all that were due after it, the last one for none.
    assert max(latencies) >= due[-1] - due[0]
    assert all(each >= 0 for each in late)


@given(st.floats(100, 5000), st.integers(0, 100))
def test_moments_are_those_of_independent_users(rate_per_s: float, seed: int) -> None:
    """Ascending, within the time, and about as many as the rate says."""
    due = load.moments(rate_per_s, 2.0, random.Random(seed))
    assert due == sorted(due)
    assert all(0 < moment < 2.0 for moment in due)
    assert len(due) == pytest.approx(2 * rate_per_s, rel=0.6)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        pytest.param(0.5, 50, id="p50"),
        pytest.param(0.99, 99, id="p99"),
        pytest.param(0.999, 100, id="p99.9"),
        pytest.param(0.0, 1, id="least"),
    ],
)
def test_percentiles(share: float, expected: float) -> None:
    """The value that this share of all does not exceed."""
    assert load.percentile([float(number) for number in range(100, 0, -1)], share) == expected
