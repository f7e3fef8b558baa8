"""When a card is Unhealthy, why, since when, and when it recovers."""

from collections.abc import Sequence
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.health.health import (
    HOLD_DOWN_S,
    MAX_CAUSES,
    MAX_OUTPUT,
    CardHealth,
    Change,
    began,
    call_failed,
    call_works,
    command_healthy,
    command_unhealthy,
    ended,
    happened,
    new,
    node_back,
    node_vanished,
    step,
    xid_event,
)

Life = Sequence[tuple[float, Change]]
NODE = "/dev/nvidia0"
KEYS = st.sampled_from(["a", "b", "c"])
CHANGES = st.one_of(
    st.builds(began, KEYS, KEYS), st.builds(ended, KEYS), st.builds(happened, st.sampled_from("abxy"), KEYS)
)
GAPS_S = st.one_of(st.floats(0, 100), st.sampled_from([0.0, HOLD_DOWN_S, HOLD_DOWN_S - 0.5]))
LIVES = st.lists(st.tuples(GAPS_S, CHANGES), max_size=25)


def after(*life: tuple[float, Change], at_s: float | None = None) -> CardHealth:
    """Return the health after these changes, each at its time, and at the time *at_s*."""
    health = new(0.0)
    for time_s, change in life:
        health = step(health, time_s, change)
    return health if at_s is None else step(health, at_s)


def at_times(gaps: Sequence[tuple[float, Change]]) -> list[tuple[float, Change]]:
    """Return changes with the time of each, from those with the time since the one before."""
    now_s, life = 0.0, []
    for gap_s, change in gaps:
        now_s += gap_s
        life.append((now_s, change))
    return life


def last_wrong_s(life: Life, now_s: float) -> float:
    """Return when something was last wrong, by going through all that happened; -inf: never."""
    wrong_s, open_keys = -inf, set[str]()
    for time_s, change in life:
        if change.kind == "happened" or (change.kind == "ended" and change.key in open_keys):
            wrong_s = time_s
        if change.kind == "began":
            open_keys.add(change.key)
        elif change.kind == "ended":
            open_keys.discard(change.key)
    return now_s if open_keys else wrong_s


@pytest.mark.parametrize(
    ("life", "reason"),
    [
        pytest.param([(5, xid_event(79))], "XID 79", id="xid"),
        pytest.param([(5, node_vanished(NODE))], "/dev/nvidia0 is missing", id="node"),
        pytest.param(
            [(5, call_failed("nvmlDeviceGetUUID", "GPU is lost"))], "nvmlDeviceGetUUID: GPU is lost", id="call"
        ),
        pytest.param([(5, command_unhealthy("fan\n 0 rpm"))], "the health command reports: fan 0 rpm", id="command"),
        pytest.param([(5, command_unhealthy(" "))], "the health command reports it as unhealthy", id="silent-command"),
        pytest.param(
            [(5, xid_event(79)), (6, node_vanished(NODE)), (7, command_unhealthy("x"))],
            "/dev/nvidia0 is missing; the health command reports: x",
            id="what-lasts-goes-first",
        ),
        pytest.param([(5, xid_event(48)), (6, xid_event(79)), (7, xid_event(48))], "XID 48; XID 79", id="each-once"),
        pytest.param(
            [(5, command_unhealthy("a")), (6, command_unhealthy("b"))], "the health command reports: b", id="newest"
        ),
    ],
)
def test_unhealthy_at_once(life: Life, reason: str) -> None:
    """A cause makes a card Unhealthy in the same step, and the reason names what holds."""
    health = after(*life)

    assert (health.healthy, health.reason) == (False, reason)


@pytest.mark.parametrize(
    ("life", "recovers_at_s"),
    [
        pytest.param([(5, xid_event(79))], 35, id="xid"),
        pytest.param([(5, xid_event(79)), (34, xid_event(79))], 64, id="the-same-again"),
        pytest.param([(5, node_vanished(NODE))], None, id="lasts"),
        pytest.param([(5, node_vanished(NODE)), (6, node_back(NODE))], 36, id="over"),
        pytest.param([(5, node_vanished(NODE)), (6, node_back(NODE)), (9, node_back(NODE))], 36, id="over-twice"),
        pytest.param([(5, node_vanished(NODE)), (6, node_back("/dev/nvidia1"))], None, id="another-is-over"),
        pytest.param(
            [(5, call_failed("a", "")), (6, node_vanished(NODE)), (7, call_works("a"))], None, id="one-of-two"
        ),
        pytest.param([(5, command_unhealthy("")), (6, xid_event(8)), (7, command_healthy())], 37, id="the-last-counts"),
        pytest.param([(5, command_unhealthy("")), (6, command_healthy()), (9, xid_event(8))], 39, id="event-after"),
        pytest.param([(5, command_healthy())], None, id="nothing-was-wrong"),
    ],
)
def test_when_a_card_recovers(life: Life, recovers_at_s: float | None) -> None:
    """The hold-down begins when the last cause is over; a card with a lasting cause, or none, has no such time."""
    health = after(*life)

    assert health.recovers_at_s == recovers_at_s
    if recovers_at_s is not None:
        assert not step(health, recovers_at_s - 0.001).healthy
        assert step(health, recovers_at_s).healthy


def test_a_recovered_card_keeps_no_reason() -> None:
    """However late its recovery is noticed; the next cause stands alone."""
    health = after((5, xid_event(79)), at_s=1000)

    assert (health.healthy, health.reason) == (True, "")
    assert step(health, 1001, xid_event(48)).reason == "XID 48"


def test_a_flapping_node() -> None:
    """A card whose node comes and goes is Unhealthy all the time, because of one cause."""
    life = [(float(time_s), (node_vanished if time_s % 2 else node_back)(NODE)) for time_s in range(1, 200)]

    assert [cause.key for cause in after(*life).causes] == [f"node {NODE}"]


@pytest.mark.parametrize(
    "time_s", [pytest.param(-5.0, id="earlier"), pytest.param(nan, id="no-number"), pytest.param(inf, id="inf")]
)
def test_time_does_not_go_back(time_s: float) -> None:
    """A time before the last, or none at all, counts as the last."""
    health = after((5, xid_event(79)))

    assert step(health, time_s) == health
    assert step(health, time_s, xid_event(79)).recovers_at_s == 5 + HOLD_DOWN_S


def test_the_hold_down_can_be_set() -> None:
    """Without one a card is Healthy as soon as nothing is wrong."""
    assert step(new(0, hold_down_s=0), 1, xid_event(79)).recovers_at_s == 1


def test_what_is_remembered_is_bounded() -> None:
    """A card with errors of thousands of kinds keeps few of them, the newest and those that last among them."""
    life = [(1.0, node_vanished(NODE)), *((float(number), xid_event(number)) for number in range(2, 3000))]
    health = after(*life)

    assert len(health.causes) == MAX_CAUSES + 1
    assert {"XID 2999", f"{NODE} is missing"} <= {cause.reason for cause in health.causes}
    assert len(command_unhealthy("x" * 100_000).reason) < MAX_OUTPUT + 50


@given(LIVES, st.floats(0, 200))
def test_healthy_only_after_the_hold_down(gaps: list[tuple[float, Change]], later_s: float) -> None:
    """A card is Healthy exactly if nothing is wrong and nothing was for as long as the hold-down."""
    life = at_times(gaps)
    now_s = (life[-1][0] if life else 0.0) + later_s
    health = after(*life, at_s=now_s)

    assert health.healthy == (last_wrong_s(life, now_s) + HOLD_DOWN_S <= now_s)
    assert health.healthy == (not health.reason)


@given(LIVES, st.lists(st.floats(0, 3000), max_size=10))
def test_it_does_not_matter_how_often_one_looks(gaps: list[tuple[float, Change]], looks_s: list[float]) -> None:
    """Steps without a change leave the card as it is, and times never go back."""
    life = at_times(gaps)
    end_s = life[-1][0] if life else 0.0
    looked = sorted([*life, *((look_s, None) for look_s in looks_s if look_s <= end_s)], key=lambda each: each[0])
    health = new(0.0)
    for time_s, change in looked:
        before = health
        health = step(health, time_s, *([change] if change is not None else ()))
        assert before.at_s <= health.at_s

    assert (health.healthy, health.recovers_at_s) == (after(*life).healthy, after(*life).recovers_at_s)
