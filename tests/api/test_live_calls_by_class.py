"""The beginning of `status`: which calls came when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.api.live import CLASSES, calls_by_class
from criproxy.wire.calls import Rule
from criproxy.wire.stats import Entry, Stats, last_call_s

CREATE, LIST = b"/runtime.v1.RuntimeService/CreateContainer", b"/runtime.v1.RuntimeService/ListContainers"
NOW_S = 1_795_000_000.0


def entry(path: bytes, calls: int, last_s: float | None) -> Entry:
    """The counts of one method."""
    found = Entry(path.decode(), None)
    found.calls, found.last_s = calls, last_s
    return found


def test_no_call_came() -> None:
    """All classes are listed, with 0 calls and no time."""
    values = calls_by_class([], None, 100.0, NOW_S)

    assert (values["last_call"], values["last_call_s"]) == (None, None)
    assert values["classes"] == {word: {"calls": 0, "last_call": None, "last_call_s": None} for word in CLASSES}


def test_the_last_call_of_each_class_and_of_all() -> None:
    """Ages are in seconds, times in UTC."""
    values = calls_by_class(
        [entry(CREATE, 2, 40.0), entry(LIST, 60, 99.5), entry(b"/x/y", 1, None)], 99.5, 100.0, NOW_S
    )

    assert values["last_call_s"] == 0.5
    assert values["last_call"] == "2026-11-18T11:06:39.500Z"
    assert values["classes"]["containers"]["calls"] == 2
    assert values["classes"]["containers"]["last_call_s"] == 60.0
    assert values["classes"]["polls"]["calls"] == 60
    assert values["classes"]["other"] == {"calls": 1, "last_call": None, "last_call_s": None}


def test_calls_count_in_every_way() -> None:
    """Calls that passed by a bypass, or came under the rules of before, came, too."""
    stats = Stats({CREATE.decode(): Rule(done=lambda _call, _outcome: None)})
    entry = stats.entry(CREATE)
    entry.calls, entry.bypassed, entry.last_s = 3, 2, 7.0
    stats.use({})

    values = calls_by_class(stats.entries.values(), last_call_s([stats]), 8.0, NOW_S)["classes"]["containers"]

    assert (values["calls"], values["last_call_s"]) == (5, 1.0)


def test_a_connection_without_a_call_counts_as_the_last_call() -> None:
    """While the runtime is away, that is all that a kubelet can do; `status --check` goes by it, too."""
    stats = Stats({})
    stats.entry(LIST).last_s, stats.connected_s = 10.0, 90.0

    values = calls_by_class(stats.entries.values(), last_call_s([stats]), 100.0, NOW_S)

    assert (values["last_call_s"], values["classes"]["polls"]["last_call_s"]) == (10.0, 90.0)


@given(st.lists(st.floats(0, 1e9)))
@pytest.mark.parametrize("now_s", [0.0, 5e8])
def test_no_age_is_negative(now_s: float, times_s: list[float]) -> None:
    """Also where a call comes between two looks at the clock."""
    values = calls_by_class([entry(LIST, 1, each) for each in times_s], max(times_s, default=None), now_s, NOW_S)

    assert (values["last_call_s"] is None) is (not times_s)
    assert values["last_call_s"] is None or values["last_call_s"] >= 0
