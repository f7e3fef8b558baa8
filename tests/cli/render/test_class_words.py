"""What a container has of its classes, in words."""

from typing import Any

import pytest

from criproxy.cli.render.class_words import container_lines

CONTROLS: dict[str, Any] = {
    "classes": {"cpu": "batch"},
    "files": [],
    "service": None,
    "service_state": "none",
    "troubles": [],
}
THROTTLING: dict[str, Any] = {
    "since": "2026-01-02T03:04:05.678Z",
    "lifted": True,
    "limited": {"seconds": 30.0, "throttled_s": 1.5},
    "unlimited": {"seconds": 2.25, "throttled_s": 0.0},
    "bursts": None,
    "burst_s": None,
    "pod": {"quota_us": None, "period_us": None, "throttled_s": None},
}
LIMIT = "CPU limit: lifted; throttled 1.5 s in 30 s in force, 0 s in 2.25 s lifted, since 2026-01-02T03:04:05Z"


THROTTLED = {
    "pod-without-limit": ({}, [LIMIT]),
    "bursts": ({"bursts": 1, "burst_s": 0.25}, [LIMIT, "bursts: 1 period, 0.25 s"]),
    "no-burst": ({"bursts": 0, "burst_s": 0.0}, [LIMIT]),
    "pod-unknown": ({"pod": None}, [LIMIT, "CPU limit of its pod: unknown"]),
    "pod-with-limit": (
        {"pod": {"quota_us": 20000, "period_us": 100000, "throttled_s": 0.5}},
        [LIMIT, "CPU limit of its pod: 20000 of 100000 µs, always in force; throttled: 0.5 s"],
    ),
    "pod-uncounted": (
        {"pod": {"quota_us": 20000, "period_us": 100000, "throttled_s": None}},
        [LIMIT, "CPU limit of its pod: 20000 of 100000 µs, always in force; throttled: unknown"],
    ),
    "unknown": (
        {"lifted": False, "limited": {"seconds": 30.0, "throttled_s": None}},
        [LIMIT.replace("lifted;", "in force;").replace("1.5 s in", "for an unknown time in")],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), THROTTLED.values(), ids=THROTTLED)
def test_how_a_container_was_throttled(changes: dict[str, Any], expected: list[str]) -> None:
    """With its CPU limit, and without it; and what its pod adds to that."""
    lines = list(container_lines({**CONTROLS, "throttling": THROTTLING | changes}))
    assert lines == ["class batch for cpu", *expected]


def test_answers_without_it() -> None:
    """Of an earlier version, or about a container without a limit."""
    assert list(container_lines(CONTROLS)) == ["class batch for cpu"]
    assert list(container_lines({**CONTROLS, "throttling": None})) == ["class batch for cpu"]


def test_what_the_service_has_not_confirmed_may_be_set() -> None:
    """As while it restarts: what it has set stays."""
    values = {**CONTROLS, "service": {"burst_us": 7}, "service_state": "pending"}
    assert list(container_lines(values)) == ["class batch for cpu", "burst us: 7 (not confirmed yet)"]
