"""The order of a run, and what becomes of its samples."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.benefit import blocks, figures, report
from lab.benefit.cases import ALONE, DEFAULT, FULL, QUICK, Plan, chosen, for_machine
from lab.benefit.gate import Account
from lab.benefit.pods import SilentError
from lab.benefit.rounds import Run, Taken, Turn, turns, twice_at_most, without
from lab.benefit.samples import Sample

PLANS = [pytest.param(plan, id=name) for name, plan in (("default", DEFAULT), ("full", FULL), ("quick", QUICK))]


def sample(value: float, neighbours_per_s: float = 10.0, **details: float) -> Sample:
    """A sample with that figure."""
    return Sample(value, neighbours_per_s, "0-1", ["0-1"], 1.0, 0.0, 0, 10, 0.5, 0.0, details)


def run_of(plan: Plan, values: Mapping[str, Sequence[tuple[float, float]]]) -> Run:
    """A run of the one case of *plan*: manager → figure and neighbours' work, by round."""
    (case,) = plan.cases
    taken = [
        Taken(Turn(number, case, manager), sample(*values[manager.name][number]), ((1.0,), (1.0,)))
        for number in reversed(range(plan.rounds))
        for manager in case.managers
    ]
    return Run(taken, Account((1.0,)), 60.0)


def ends(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Intervals that are all of the values."""
    return {name: [min(each), max(each)] for name, each in values.items() if each}


@pytest.mark.parametrize("plan", PLANS)
def test_names_of_cases_are_unique(plan: Plan) -> None:
    """And each case compares with no manager."""
    names = [case.name for case in plan.cases]
    assert len(set(names)) == len(names)
    assert all(case.managers[0].name == "none" for case in plan.cases)


@given(st.integers(0, 1000))
def test_each_round_has_every_turn_once(seed: int) -> None:
    """In an order that the seed decides; the managers of a case follow each other."""
    plan = replace(DEFAULT, seed=seed)
    wanted = {(case.name, manager.name) for case in plan.cases for manager in case.managers}
    for number, taken in enumerate(turns(plan)):
        assert {(turn.case.name, turn.manager.name) for turn in taken} == wanted
        assert len(taken) == len(wanted)
        assert {turn.round for turn in taken} == {number}
        names = [turn.case.name for turn in taken]
        assert sum(one != other for one, other in pairwise(names)) == len(plan.cases) - 1
    assert list(turns(plan)) == list(turns(plan))


def test_rounds_differ_in_order() -> None:
    """A manager that always came first would have the coolest machine."""
    orders = {tuple(turn.manager.name for turn in taken) for taken in turns(DEFAULT)}
    assert len(orders) == DEFAULT.rounds


def test_the_default_is_within_forty_minutes() -> None:
    """Measuring takes half of that, so that as much is left for containers to start."""
    samples = sum(len(case.managers) for case in DEFAULT.cases) * DEFAULT.rounds
    assert samples * DEFAULT.seconds <= 20 * 60
    assert DEFAULT.rounds >= 7
    assert DEFAULT.seconds <= 15


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("cpus", "numa_nodes"), [(2, 1), (64, 2)])
def test_neighbours_fill_the_node(plan: Plan, cpus: int, numa_nodes: int) -> None:
    """Together with the workload they ask for all CPUs but a part of one, which the kubelet keeps; never for more."""
    for case in for_machine(plan, cpus, numa_nodes).cases:
        neighbours = case.neighbours
        asked_milli = case.workload.request_milli + neighbours.count * neighbours.request_milli * neighbours.workers
        assert asked_milli <= 1000 * cpus - 100
        if neighbours.request_milli and case.workload.request_milli == 1000:
            assert asked_milli >= 0.9 * 1000 * cpus


def test_remote_memory_is_measured_where_there_is_some() -> None:
    """Cases for it are added on machines with several nodes, and nothing else changes."""
    names = [[case.name for case in for_machine(DEFAULT, 8, nodes).cases] for nodes in (1, 2)]
    assert names[0] == [case.name for case in DEFAULT.cases]
    assert names[1] == [*names[0], "chase/busy", "stream/busy"]


def test_gains_are_compared_round_by_round() -> None:
    """What slowed a whole round cancels out."""
    case = DEFAULT.cases[0]
    plan = Plan((replace(case, managers=case.managers[:2]),), rounds=3)
    values = {"none": [(10, 100), (20, 100), (40, 100)], "kubelet-static": [(5, 50), (10, 75), (20, 100)]}

    (found,) = figures.cases(plan, run_of(plan, values), ends)

    direct, managed = found["managers"]
    assert direct["value"] == {"median": 20, "low": 10, "high": 40}
    assert managed["shorter_percent"] == {"median": 50, "low": 50, "high": 50}
    assert managed["neighbours_lose_percent"] == {"median": 25, "low": 0, "high": 50}


def test_nobody_loses_where_there_are_no_neighbours() -> None:
    """There is no figure then, rather than a zero."""
    case = DEFAULT.cases[0]
    plan = Plan((replace(case, neighbours=ALONE, managers=case.managers[:2]),), rounds=2)
    values = {name: [(10.0, 0.0), (11.0, 0.0)] for name in ("none", "kubelet-static")}

    (found,) = figures.cases(plan, run_of(plan, values), ends)

    assert [row["neighbours_lose_percent"] for row in found["managers"]] == [None, None]


@pytest.mark.parametrize(
    ("words", "managers", "expected"),
    [
        pytest.param((), (), [case.name for case in DEFAULT.cases], id="all"),
        pytest.param(("redis",), (), ["redis/web", "redis-burstable/web"], id="prefix"),
        pytest.param(("stream/",), ("none", "balloons"), ["stream/thrashers"], id="managers"),
    ],
)
def test_cases_are_chosen_by_their_names(
    words: tuple[str, ...], managers: tuple[str, ...], expected: list[str]
) -> None:
    """And managers by theirs."""
    found = chosen(DEFAULT, words, managers)
    assert [case.name for case in found] == expected
    if managers:
        assert tuple(manager.name for manager in found[0].managers) == managers


@pytest.mark.parametrize(
    ("words", "managers", "message"),
    [
        pytest.param(("mysql",), (), "no case begins with mysql", id="case"),
        pytest.param((), ("slurm",), "no such manager: slurm", id="manager"),
    ],
)
def test_an_unknown_name_is_told(words: tuple[str, ...], managers: tuple[str, ...], message: str) -> None:
    """Before anything is measured."""
    with pytest.raises(ValueError, match=message):
        chosen(DEFAULT, words, managers)


@pytest.mark.parametrize("plan", PLANS)
def test_erratic_cases_are_judged_by_their_neighbours(plan: Plan) -> None:
    """PyTorch's spinning threads are erratic beside all neighbours, and redis beside busy loops."""
    judged = {case.name for case in for_machine(plan, 2, 1).cases if case.is_judged_by_neighbours}
    names = {case.name for case in plan.cases}
    spinning = {
        name for name in names if name.startswith(("cnn-pytorch/", "cnn-pytorch-burstable/")) and "alone" not in name
    }
    assert judged == spinning | names & {"redis/busy"}


def test_a_sample_is_judged_by_its_worse_calibration() -> None:
    """Each sample that counts has one, and those at another speed are counted."""
    turn = Turn(0, DEFAULT.cases[0], DEFAULT.cases[0].managers[0])
    pairs = [((1.0, 2.0), (1.05, 2.0)), ((1.05, 2.0), (1.0, 3.0)), ((0.5, 2.0), (1.0, 2.0))]
    run = Run([Taken(turn, sample(1.0), pair) for pair in pairs], Account((1.0, 2.0)), 60.0)

    assert run.calibrations_s() == [(1.05, 2.0), (1.0, 3.0), (0.5, 2.0)]
    assert run.unusual() == 2
    assert run.taken[1].as_json()["calibrated_s"] == [[1.05, 2.0], [1.0, 3.0]]


def test_what_cannot_run_is_left_out() -> None:
    """The other cases are measured."""
    left = without(DEFAULT, {"torch"})
    assert {case.name for case in DEFAULT.cases} - {case.name for case in left.cases} == {"cnn-pytorch/busy"}


def test_a_sample_that_fails_is_taken_again() -> None:
    """Once, and the report says so; a second failure ends the run."""
    outcomes: list[Sample | SilentError] = [SilentError("it was silent"), sample(1.0)]
    repeated: list[str] = []

    def take() -> Sample:
        outcome = outcomes.pop(0)
        if isinstance(outcome, SilentError):
            raise outcome
        return outcome

    assert twice_at_most(take, "redis/web, none", repeated).value == 1.0
    assert repeated == ["redis/web, none: it was silent"]
    outcomes += [SilentError("first"), SilentError("second")]
    with pytest.raises(SilentError, match="second"):
        twice_at_most(take, "redis/web, none", repeated)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param((1, 3), (2, 4), True, id="overlap"),
        pytest.param((1, 4), (2, 3), True, id="inside"),
        pytest.param((1, 2), (2, 3), True, id="touch"),
        pytest.param((1, 2), (3, 4), False, id="apart"),
    ],
)
def test_runs_agree_where_their_intervals_meet(
    one: tuple[float, float], other: tuple[float, float], *, expected: bool
) -> None:
    """In whichever order they are compared."""
    first, second = ({"low": low, "high": high} for low, high in (one, other))
    assert blocks.overlap(first, second) is expected
    assert blocks.overlap(second, first) is expected

    def of(figure: dict[str, float]) -> dict[str, Any]:
        return {"cases": [{"name": "a/b", "managers": [{"name": "m", "shorter_percent": figure}]}]}

    assert report.disagreements(of(first), of(second)) == ([] if expected else ["a/b m"])


def test_a_report_has_a_line_for_each_item_of_its_raw_data() -> None:
    """Nothing else changes."""
    raw = {"calibrations_s": [[1.0, 2.0]], "learned_s": [], "samples": [{"value": 1}, {"value": 2}], "taken_again": []}
    made = {"format": 1, "raw": raw}

    text = report.dump(made)

    assert json.loads(text) == made
    assert {"   [1.0, 2.0]", '   {"value": 1},', '   {"value": 2}'} <= set(text.splitlines())
