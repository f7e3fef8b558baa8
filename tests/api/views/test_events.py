"""What happened on the node."""

import pytest

from criproxy.api.views.events import MAX_EVENTS, to_values
from criproxy.model.record import Kind, Record


def record(at_s: float, key: str = "0a1b", life: str = "r-1") -> Record:
    """One of a container."""
    return Record(at_s, key, "shop/web/main", Kind.UPDATED, ("one", "two"), life, {"cpus": "0-3"})


def test_all_of_an_event() -> None:
    """The keys that docs/status.md documents; without an id where the runtime gave none."""
    (event, unknown) = to_values([record(1.5), record(2.0, "r-1")], 7)["events"]

    assert event == {
        "time": "1970-01-01T00:00:01.500Z",
        "kind": "updated",
        "container": "shop/web/main",
        "id": "0a1b",
        "sentences": ["one", "two"],
        "facts": {"cpus": "0-3"},
    }
    assert unknown["id"] == ""


@pytest.mark.parametrize(
    ("since_s", "times_s", "expected"),
    [
        pytest.param(0.0, [1.0, 2.0], ["01", "02"], id="all"),
        pytest.param(2.0, [1.0, 2.0, 3.0], ["02", "03"], id="since"),
        pytest.param(9.0, [1.0, 2.0], [], id="none"),
        pytest.param(0.0, [2.0, 1.0, 3.0], ["01", "02", "03"], id="late-record"),
    ],
)
def test_in_the_order_of_time(since_s: float, times_s: list[float], expected: list[str]) -> None:
    """A record that was written later than others of its time is at its place."""
    values = to_values([record(each) for each in times_s], 7, since_s)

    assert [event["time"][17:19] for event in values["events"]] == expected
    assert (values["last"], values["has_more"]) == (7, False)


@pytest.mark.parametrize(
    ("since_s", "more"),
    [pytest.param(0.0, True, id="full"), pytest.param(1.0, False, id="older-ones-are-not-wanted")],
)
def test_whether_there_are_more(since_s: float, more: bool) -> None:
    """Only if the oldest that was found is wanted, too."""
    assert to_values([record(float(number)) for number in range(MAX_EVENTS)], 7, since_s)["has_more"] is more
