"""What the daemon expects of the device plugin, also after a restart."""

import json
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest

from criproxy.devices.plugin.published import Published
from criproxy.node.devices.plugin import NAME, REFUSED_S, REMEMBERED_S, DevicePlugin, Expected, read_expected


class Clock:
    """Monotonic seconds that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        """Return them."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands."""
    return Clock()


def restarted(plugin: DevicePlugin, clock: Clock) -> DevicePlugin:
    """Return what a daemon knows that starts with what *plugin* had to remember."""
    after = DevicePlugin(clock)
    after.restore(plugin.expected)
    return after


def begin(plugin: DevicePlugin) -> None:
    """It says that it begins."""
    plugin.begin("one")


def report(plugin: DevicePlugin) -> None:
    """It reports."""
    plugin.publish(Published(instance="one"))


def end(plugin: DevicePlugin) -> None:
    """It begins, and is ended."""
    plugin.begin("one")
    plugin.end("one")


def refuse(plugin: DevicePlugin) -> None:
    """It begins, and refuses its files."""
    plugin.begin("one")
    plugin.begin("one", "replicas: abc")


@pytest.mark.parametrize(("does", "is_due"), [(begin, True), (report, True), (end, False), (refuse, False)])
def test_one_that_ran_before_a_restart_is_due(clock: Clock, does: Callable[[DevicePlugin], None], is_due: bool) -> None:
    """For an hour, unless it was ended or has refused its files."""
    does(plugin := DevicePlugin(clock))

    after = restarted(plugin, clock)

    assert after.is_due is is_due
    clock.now_s += REMEMBERED_S + 1
    assert not after.is_due


def test_one_that_begins_after_a_restart_is_due_for_ever(clock: Clock) -> None:
    """It has said so itself."""
    (plugin := DevicePlugin(clock)).begin("one")

    (after := restarted(plugin, clock)).begin("two")
    clock.now_s += REMEMBERED_S + 1

    assert after.is_due


def test_a_refusal_counts_as_long_as_without_a_restart(clock: Clock) -> None:
    """Ten minutes, by the minute: the file is not written for every attempt."""
    (plugin := DevicePlugin(clock)).begin("one", "replicas: abc")

    after = restarted(plugin, clock)

    assert after.refused == "replicas: abc"
    clock.now_s += REFUSED_S + 1
    assert (plugin.refused, after.refused) == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[1]", id="list"),
        pytest.param("{}", id="nothing"),
        pytest.param("null", id="null-alone"),
        pytest.param('{"runs": true, "refused": "", "refused_s": "soon"}', id="no-number"),
        pytest.param('{"runs": true, "refused": "", "refused_s": null}', id="null"),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_file_that_is_none_is_ignored(tmp_path: Path, text: str) -> None:
    """The daemon starts, and knows what it knew without it."""
    (tmp_path / NAME).write_text(text)

    assert read_expected(tmp_path) == Expected()


def test_a_clock_that_was_set_back_does_not_prolong_a_refusal(tmp_path: Path, clock: Clock) -> None:
    """A refusal of the future is one of now."""
    values = {"runs": False, "refused": "no", "refused_s": time() + 10 * REFUSED_S, "newer": 1}
    (tmp_path / NAME).write_text(json.dumps(values))

    (plugin := DevicePlugin(clock)).restore(read_expected(tmp_path))
    clock.now_s += REFUSED_S + 1

    assert plugin.refused == ""
