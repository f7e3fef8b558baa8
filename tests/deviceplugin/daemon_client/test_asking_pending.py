"""Reports that are kept until they have been delivered."""

import pytest

from criproxy.deviceplugin.daemon_client.asking import PendingReports


@pytest.fixture
def pending() -> PendingReports[str, object]:
    """Return a collection that keeps at most two reports."""
    return PendingReports(maximum=2)


def test_a_newer_report_about_the_same_key_replaces_the_older_one(pending: PendingReports[str, object]) -> None:
    """It becomes the newest of all reports."""
    for key, report in (("a", "fails"), ("b", "fails"), ("a", "works")):
        pending.add(key, report)

    assert [*pending.items()] == [("b", "fails"), ("a", "works")]
    assert (len(pending), pending.get("a"), "c" in pending) == (2, "works", False)


def test_the_number_of_reports_is_bounded(pending: PendingReports[str, object]) -> None:
    """The oldest report is dropped; a replacement drops none."""
    for key in ("a", "b", "b", "c"):
        pending.add(key, key)

    assert [*pending.items()] == [("b", "b"), ("c", "c")]


def test_only_the_report_that_was_sent_is_removed(pending: PendingReports[str, object]) -> None:
    """An equal report that was added meanwhile stays: it is about a later change."""
    sent, newer = ["fails"], ["fails"]
    pending.add("a", sent)
    pending.add("a", newer)

    assert not pending.remove("a", sent)
    assert pending.remove("a", newer)
    assert not pending.remove("a", newer)
    assert len(pending) == 0
