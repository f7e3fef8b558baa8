"""Warnings that repeat."""

from criproxy.process.logger import LogOnce
from tests.node.world import RecordingLog


def test_a_reason_is_logged_once_until_it_changes() -> None:
    """After `clear`, the same reason is logged again."""
    log = RecordingLog()
    problems = LogOnce(log)
    for reason in ("disk full", "disk full", "no disk", "disk full"):
        problems.warning("the file is not written", reason)
    problems.clear()
    problems.warning("the file is not written", "disk full")

    assert [keys["reason"] for _, keys in log.lines] == ["disk full", "no disk", "disk full", "disk full"]
