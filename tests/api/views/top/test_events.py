"""What has happened between two answers of the daemon."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from criproxy.api.views.top.events import Event, cpus_of, earlier, later
from criproxy.api.views.top.snapshot import Row, Snapshot

WEB = Row(id="w", title="shop/web/main", state="running", cpus=frozenset({2, 3}), exclusive=frozenset({2, 3}))
SHARER = Row(id="s", title="shop/db/main", state="running", cpus=frozenset({4, 5}))
REFUSED = ("shop/big/main", "2026-01-01T10:00:00.000Z", "shop/big/main asks for 9 CPUs")


def told(*rows: Row, **more: Any) -> Snapshot:  # noqa: ANN401 (fields)
    """An answer."""
    return Snapshot(**{"source": "daemon", "time": "2026-01-01T12:00:00.000Z", "rows": rows, **more})


@pytest.mark.parametrize(
    ("before", "now", "texts"),
    [
        pytest.param([], [WEB], ["shop/web/main is new, exclusively on CPUs 2-3"], id="new"),
        pytest.param([], [replace(WEB, state="exited")], [], id="seen-only-when-it-had-ended"),
        pytest.param([WEB], [], ["shop/web/main is gone"], id="gone"),
        pytest.param([replace(WEB, state="exited")], [], [], id="removed-after-its-end"),
        pytest.param([WEB], [replace(WEB, state="exited")], ["shop/web/main is exited now, was running"], id="ended"),
        pytest.param(
            [WEB],
            [replace(WEB, cpus=frozenset({6}), exclusive=frozenset({6}))],
            ["shop/web/main is exclusively on CPU 6 now, was exclusively on CPUs 2-3"],
            id="moved",
        ),
        pytest.param([SHARER], [replace(SHARER, cpus=frozenset({5}))], [], id="the-shared-pool-is-smaller"),
        pytest.param([WEB], [replace(WEB, error="EBUSY")], ["shop/web/main cannot be updated: EBUSY"], id="failed"),
        pytest.param([WEB, SHARER], [WEB, SHARER], [], id="nothing"),
    ],
)
def test_what_happened_to_containers(before: Sequence[Row], now: Sequence[Row], texts: list[str]) -> None:
    """Who came, went, moved or failed; not that others have made room."""
    assert [event.text for event in later(told(*before), told(*now))] == texts


def test_new_refusals_and_notices_are_events() -> None:
    """Each once, as long as it is told of."""
    quiet, loud = told(), told(refusals=[REFUSED], notices=[(True, "the runtime is away")])

    assert earlier(loud) == [
        Event(REFUSED[1], f"REFUSED {REFUSED[2]}", wrong=True),
        Event(loud.time, "the runtime is away", wrong=True),
    ]
    assert [event.text for event in later(quiet, loud)] == [f"REFUSED {REFUSED[2]}", "the runtime is away"]
    assert later(loud, loud) == []


def test_what_was_stored_is_not_compared_with_what_the_daemon_says() -> None:
    """Else everybody would be new when the daemon answers again."""
    assert later(told(source="store"), told(WEB)) == []


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param(WEB, "2-3", id="exclusive"),
        pytest.param(replace(WEB, cpus=frozenset({2, 3, 4})), "2-3+shared", id="mixed"),
        pytest.param(SHARER, "shared", id="shared"),
        pytest.param(replace(SHARER, placed=False), "not placed", id="not-placed"),
    ],
)
def test_the_place_in_a_table(row: Row, text: str) -> None:
    """In a few characters."""
    assert cpus_of(row) == text
