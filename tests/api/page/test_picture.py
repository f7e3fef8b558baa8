"""The messages of the stream: whoever follows them knows what whoever comes late is told at once."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from criproxy.api.page.stream import MAX_EVENTS, Picture, changes, picture, whole

TEXTS = st.text(max_size=4)
MAPS = st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(0, 2)), max_size=4)
LOOKS = st.lists(st.tuples(MAPS, MAPS, st.lists(TEXTS, max_size=3)), min_size=1, max_size=4)
HOSTILE = "a\n\ndata: {}\r\nevent: x\u2028\ud800"


def read(message: bytes) -> dict[str, Any]:
    """A message as a browser reads it."""
    kind, data, *end = message.split(b"\n")
    assert (kind, end) == (b"event: node", [b"", b""])
    found: dict[str, Any] = json.loads(data.removeprefix(b"data: "))
    return found


def taken(known: dict[str, Any], message: bytes) -> dict[str, Any]:
    """What a page knows that knew *known* before; it takes a message as node.js does."""
    told = read(message)
    before = {"parts": {}, "rows": {}, "events": []} if told["whole"] else known
    rows = {life: row for life, row in {**before["rows"], **told["rows"]}.items() if life not in told["gone"]}
    return {
        "parts": {**before["parts"], **told["parts"]},
        "rows": rows,
        "events": [*before["events"], *told["events"]][-MAX_EVENTS:],
    }


@given(LOOKS)
def test_changes_lead_to_the_whole(looks: list[tuple[dict[str, Any], dict[str, Any], list[str]]]) -> None:
    """A page that has got every change shows the same as one that is opened now."""
    before: Picture | None = None
    known: dict[str, Any] = {}
    for parts, rows, events in looks:
        names = {"status": parts}
        now = picture(names, rows, before, events)
        known = taken(known, changes(before, now) if before else whole(now))
        assert known == taken({}, whole(now))
        before = now


def test_what_is_the_same_is_not_sent_again() -> None:
    """A change has the rows that differ, those that are gone, and new events."""
    first = picture({"status": 1, "machine": 2}, {"a": 1, "b": 2}, None, ["old"])
    second = picture({"status": 1, "machine": 3}, {"b": 2, "c": 4}, first, ["new"])

    assert read(changes(first, second)) == {
        "whole": False,
        "parts": {"machine": 3},
        "rows": {"c": 4},
        "gone": ["a"],
        "events": ["new"],
    }


def test_no_name_ends_a_message() -> None:
    """Line breaks in texts are escaped, so that a tenant cannot write events of its own."""
    now = picture({}, {HOSTILE: HOSTILE}, None, [HOSTILE])

    assert read(whole(now))["rows"] == {HOSTILE: HOSTILE}


def test_the_newest_events_are_kept() -> None:
    """A page begins with a bounded number of events."""
    first = picture({}, {}, None, range(MAX_EVENTS))
    second = picture({}, {}, first, ["new"])

    assert len(second.events) == MAX_EVENTS
    assert read(whole(second))["events"][-1] == "new"
