"""What Events say, by views and records of the daemon."""

from datetime import datetime
from typing import Any

import pytest

from criproxy.agent.signs.event_texts import MOST_CHARS, Happening, of_condition, of_node, of_pod, would_help
from criproxy.agent.signs.wanted import WELL, Condition
from tests.agent.views import view_of

ON = {"bypass": True, "mode": "automatic", "since": "", "reason": "10 failures"}
TRY = {"until": "2026-11-30T02:00:00Z", "left_s": 60.0, "back": {"file": "policy.yaml", "hash": "old"}}


def configuration(hash_: str, try_: object = None) -> dict[str, Any]:
    """The configuration in effect."""
    return {"configuration": {"file": f"{hash_}.yaml", "hash": hash_, "loaded": "", "kept": False, "try": try_}}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({}, {"bypass": ON}, ["BypassOn"], id="bypass-on"),
        pytest.param({"bypass": ON}, {"bypass": ON}, [], id="bypass-still-on"),
        pytest.param({"bypass": ON}, {}, ["BypassOff"], id="bypass-off"),
        pytest.param(None, {"bypass": ON}, ["BypassOn"], id="bypass-on-at-the-start"),
        pytest.param(None, {}, [], id="well-at-the-start"),
        pytest.param({}, {"released": "why"}, ["Released"], id="released"),
        pytest.param({"released": "why"}, {}, ["ReleaseEnded"], id="release-ended"),
        pytest.param({}, {"found": [{"kind": "config", "text": "x"}]}, ["ConfigurationRefused"], id="refused"),
        pytest.param({"found": [{"kind": "config", "text": "x"}]}, {}, ["ConfigurationAccepted"], id="accepted"),
        pytest.param(
            {}, {"found": [{"kind": "device-plugin-config", "text": "x"}]}, ["DeviceConfigurationRefused"], id="devices"
        ),
        pytest.param(configuration("new", TRY), configuration("old"), ["RolledBack"], id="rolled-back"),
        pytest.param(configuration("new", TRY), configuration("new"), [], id="kept"),
        pytest.param(configuration("new", TRY), configuration("new", TRY), [], id="still-tried"),
        pytest.param(configuration("old"), configuration("new", TRY), [], id="try-begins"),
    ],
)
def test_events_of_the_node(before: dict[str, Any] | None, now: dict[str, Any], expected: list[str]) -> None:
    """One at the begin and one at the end of what is wrong; a bad state at the start of the agent is told."""
    views = [None if each is None else view_of(**{"found": [], **each}) for each in (before, now)]
    assert views[1] is not None
    found = [*of_node(views[0], views[1], "worker-1", 7.0)]

    assert [each.reason for each in found] == expected
    assert all((each.kind, each.name, each.at_s) == ("Node", "worker-1", 7.0) for each in found)


OVER_S = datetime.fromisoformat(str(TRY["until"])).timestamp()


@pytest.mark.parametrize(
    ("at_s", "said", "why"),
    [
        pytest.param(OVER_S, "", "its time is over, and nobody has kept it", id="in-time"),
        pytest.param(OVER_S - 1, "", "the try was ended before its time", id="by-somebody"),
        pytest.param(OVER_S - 1, "shop/db has no place", "shop/db has no place", id="by-the-rollout"),
    ],
)
def test_a_try_that_ended_says_why_and_what_is_in_effect(at_s: float, said: str, why: str) -> None:
    """By file and hash; the rollout knows why it has ended the try of that hash."""
    before, now = view_of(**configuration("new", TRY)), view_of(**configuration("old"))
    (found,) = of_node(before, now, "worker-1", at_s, {"new": said, "old": "no"}.__getitem__)
    was = f"new.yaml (hash new) was tried, and is no longer in effect: {why}"
    assert found.message == f"{was}; now old.yaml (hash old) is in effect"


def test_the_events_of_a_condition() -> None:
    """A bypass and a release have events of their own."""
    bad = of_condition(Condition("False", "NotReady", "the disk fails"), "n", 1.0)
    good = of_condition(WELL, "n", 1.0)

    assert (bad and bad.reason, bad and bad.is_warning) == ("CriproxyNotReady", True)
    assert (good and good.reason, good and good.is_warning) == ("CriproxyReady", False)
    assert of_condition(Condition("False", "Bypassed", ""), "n", 1.0) is None


def record(kind: str, *sentences: str, **facts: object) -> dict[str, Any]:
    """A record of the daemon's history."""
    return {
        "time": "2026-11-30T01:02:03.456Z",
        "kind": kind,
        "container": "shop/web/main",
        "pod_uid": "u-1",
        "id": "",
        "sentences": [*sentences],
        "facts": facts,
    }


@pytest.mark.parametrize(
    ("event", "reason", "is_warning", "message"),
    [
        pytest.param(
            record("refused", "shop/web/main does not fit"),
            "PlacementRefused",
            True,
            "container main: does not fit",
            id="refused",
        ),
        pytest.param(
            record("resized", "there is room now", unplaced_since_s=1_796_000_523.0, cpus="1"),
            "RanUnpinned",
            True,
            "container main: it ran without a place of its own, on shared CPUs, from 2026-11-30T01:02:03Z to "
            "2026-11-30T01:02:03Z (0 s); now it has its place",
            id="unpinned",
        ),
        pytest.param(
            record("exited", "it ended", unplaced_since_s=1_796_000_523.0),
            "RanUnpinned",
            True,
            "container main: it ran without a place of its own, on shared CPUs, from 2026-11-30T01:02:03Z to "
            "2026-11-30T01:02:03Z (0 s); then it ended",
            id="ended unpinned",
        ),
        pytest.param(
            record("gone", "it ended", unplaced_since_s=1_796_000_500.0, unplaced_until_s=1_796_000_510.5),
            "RanUnpinned",
            True,
            "container main: it ran without a place of its own, on shared CPUs, from 2026-11-30T01:01:40Z to "
            "2026-11-30T01:01:50Z (10 s); then it ended",
            id="ended unseen",
        ),
        pytest.param(
            record("quota", "it is over its quota", state="begun"),
            "QuotaExceeded",
            True,
            "container main: it is over its quota",
            id="over",
        ),
        pytest.param(
            record("quota", "criproxy has stopped it", state="stopped"),
            "QuotaStopped",
            True,
            "container main: criproxy has stopped it",
            id="stopped",
        ),
        pytest.param(
            record("quota", "it is within its quota", state="ended"),
            "QuotaKept",
            False,
            "container main: it is within its quota",
            id="within",
        ),
    ],
)
def test_events_of_pods(event: dict[str, Any], reason: str, is_warning: bool, message: str) -> None:
    """With the pod's UID, which says which pod of this name it is."""
    found = of_pod(event)
    assert found is not None
    expected = Happening(reason, message, "Pod", "web", "shop", "u-1", is_warning=is_warning, at_s=found.at_s)
    assert found == expected
    assert found.at_s == pytest.approx(1_796_000_523.456)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(record("granted", "gets CPUs 1-2"), id="granted"),
        pytest.param(record("resized", "it was resized", cpus="1"), id="only-resized"),
        pytest.param(record("quota", "of an older daemon"), id="quota-without-state"),
        pytest.param({**record("refused", "x"), "pod_uid": ""}, id="pod-unknown"),
        pytest.param({**record("refused", "x"), "container": ""}, id="node"),
        pytest.param({**record("refused", "x"), "container": "web/main"}, id="parts-missing"),
    ],
)
def test_records_without_an_event(event: dict[str, Any]) -> None:
    """What is usual, and what cannot be said of a certain pod."""
    assert of_pod(event) is None


def test_messages_are_bounded_and_printable() -> None:
    """Whatever tenants write into names and annotations."""
    found = of_pod(record("refused", "\x1b[31m\n" + "x" * 10_000))
    assert found is not None
    assert found.message.startswith(r"container main: \x1b[31m\n")
    assert len(found.message) < MOST_CHARS + 60


@pytest.mark.parametrize(
    ("leavers", "expected"),
    [
        pytest.param(None, "", id="unknown"),
        pytest.param(
            {"containers": ["shop/api/main"], "omitted": 0, "text": ""}, "it would fit without api/main", id="own"
        ),
        pytest.param(
            {"containers": ["shop/api/main", "secret/a/b"], "omitted": 1, "text": ""},
            "it would fit without api/main and 2 others",
            id="own-and-others",
        ),
        pytest.param(
            {"containers": ["secret/a/b"], "omitted": 0, "text": ""},
            "it would fit without 1 container of other namespaces",
            id="others",
        ),
        pytest.param({"containers": [], "omitted": 0, "text": "it would never fit"}, "it would never fit", id="never"),
    ],
)
def test_what_would_help(leavers: object, expected: str) -> None:
    """Containers of other namespaces are counted, and not named."""
    assert would_help({"choices": [{"leavers": leavers}]}, "shop") == expected
    assert would_help({"choices": []}, "shop") == ""


def test_escapes_make_no_message_long() -> None:
    """A tenant's control characters count as they are shown."""
    happening = of_pod(record("refused", "shop/web/main: " + "\U000e0001\x1b" * 600))

    assert happening is not None
    assert happening.message.isprintable()
    assert len(happening.message) < 1000
