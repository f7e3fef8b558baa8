"""Readings as programs and files say them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.usage.readings import InvalidReading, parse_reading
from criproxy.devices.usage.values import CardUse, Process, ProcessUse, Reading


def test_all_that_a_reading_may_have() -> None:
    """What may be missing has its default, and what is too much is only named."""
    said = {
        "processes": [
            {"pid": 4711, "card": "npu0", "memory_mib": 900, "cores_percent": 12.5, "name": "python"},
            {"pid": 4712, "card": 1, "memory_mib": 0},
        ],
        "cards": [{"card": "npu0", "memory_mib": 900.7, "total_mib": 16384, "cores_percent": 40}],
        "unread": {"npu1": "it is being reset"},
        "version": 3,
    }

    assert parse_reading(said, "ali-npu", 7.0) == Reading(
        kind="ali-npu",
        at_s=7.0,
        processes=(
            ProcessUse(process=Process(pid=4711, start_ticks=0), card="npu0", memory_mib=900, cores_percent=12.5),
            ProcessUse(process=Process(pid=4712, start_ticks=0), card="1"),
        ),
        cards=(CardUse(card="npu0", memory_mib=900, total_mib=16384, cores_percent=40.0),),
        unread={"npu1": "it is being reset"},
        unknown_keys=("version", "processes[].name"),
    )
    assert parse_reading({"processes": []}, "x", 1.0) == Reading(kind="x", at_s=1.0)
    cards = [{"card": 0, "memory_mib": 1, "sampled_s": 3}, {"card": "b", "memory_mib": 1}]
    assert parse_reading({"processes": [], "cards": cards}, "x", 1.0).sampled_s == {"0": 3.0}
    assert parse_reading({"problem": "no driver"}, "x", 1.0).problem == "no driver"


@pytest.mark.parametrize(("said_s", "at_s"), [(3, 3.0), (7.0, 7.0), (7.9, 7.0)], ids=["waited", "now", "rounded"])
def test_a_reading_may_say_when_it_was_taken(said_s: float, at_s: float) -> None:
    """It is never of a time after it came."""
    assert parse_reading({"processes": [], "monotonic_s": said_s}, "x", 7.0).at_s == at_s


def process(**fields: object) -> dict[str, Any]:
    """Return a reading with one process, which uses 1 MiB of a card but for these fields."""
    said = {"pid": 4, "card": "a", "memory_mib": 1, **fields}
    return {"processes": [{name: value for name, value in said.items() if value is not None}]}


def card(**fields: object) -> dict[str, Any]:
    """Return a reading with one card."""
    return {"processes": [], "cards": [{"card": "a", **fields}]}


TAKEN = "monotonic_s must be a past time of the machine's monotonic clock"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        pytest.param([], "a reading must be an object, not []", id="list"),
        pytest.param({}, "processes is missing", id="nothing"),
        pytest.param({"process": []}, "processes is missing; unknown keys: process", id="misspelt"),
        pytest.param({"problem": "", "cards": []}, "processes is missing", id="no-problem"),
        pytest.param({"processes": None}, "processes must be a valid list, not None", id="processes-null"),
        pytest.param({"processes": [3]}, "processes[0] must be an object, not 3", id="process"),
        pytest.param(process(memory_mib=None), "processes[0].memory_mib is missing", id="no-memory"),
        pytest.param(process(memory_mib=-1), "processes[0].memory_mib must be", id="negative"),
        pytest.param(process(memory_mib=float("nan")), "memory_mib must be less than", id="nan"),
        pytest.param(process(memory_mib=10**400), "memory_mib must be", id="more-than-floats"),
        pytest.param(process(pid=None), "processes[0].pid is missing", id="no-pid"),
        pytest.param(process(pid=0), "processes[0].pid", id="pid-0"),
        pytest.param(process(pid=True), "processes[0].pid", id="pid-true"),
        pytest.param(process(pid=-4), "processes[0].pid", id="a-process-group"),
        pytest.param(process(card=None), "processes[0].card is missing", id="no-card"),
        pytest.param(process(cores_percent=101), "cores_percent must be less than or equal to 100", id="cores"),
        pytest.param(card(), "cards[0].memory_mib", id="a-card-without-memory"),
        pytest.param(card(memory_mib=1, sampled_s="now"), "cards[0].sampled_s must be", id="sampled-text"),
        pytest.param(card(memory_mib=1, sampled_s=float("inf")), "cards[0].sampled_s", id="sampled-inf"),
        pytest.param(card(memory_mib=1, total_mib="8Gi"), "cards[0].total_mib must be", id="a-text"),
        pytest.param({"processes": [], "monotonic_s": 1.5}, TAKEN, id="future"),
        pytest.param({"processes": [], "monotonic_s": -1}, TAKEN, id="before-the-boot"),
        pytest.param({"processes": [], "monotonic_s": "1"}, "monotonic_s must be a valid number", id="time-as-text"),
        pytest.param({"processes": [], "monotonic_s": float("nan")}, TAKEN, id="no-time"),
        pytest.param({"unread": ["a"]}, "unread must be a valid dictionary", id="unread"),
        pytest.param({"problem": 1}, "problem must be a valid string", id="problem"),
    ],
)
def test_what_is_no_reading_is_named(said: object, sentence: str) -> None:
    """A program with a mistake judges nobody, and who wrote it learns where the mistake is."""
    with pytest.raises(InvalidReading) as caught:
        parse_reading(said, "x", 0.0)

    assert sentence in str(caught.value)


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(["processes", "cards", "unread", "problem", "pid", "card", "memory_mib", "total_mib"])


@given(st.dictionaries(_FIELDS, _JSON | st.lists(st.dictionaries(_FIELDS, _JSON))))
def test_any_json_is_a_reading_or_is_refused(said: dict[str, Any]) -> None:
    """Nothing else is raised, and no process has a number that means others."""
    try:
        reading = parse_reading(said, "x", 0.0)
    except InvalidReading:
        return
    assert all(each.process.pid > 0 and each.memory_mib >= 0 for each in reading.processes)
