"""Random histories of use: nobody within its quota is touched, and everybody beyond the grace once per incident.

An incident is said again only if more is to be done about it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import Phase, given, settings

from criproxy.deviceplugin.usage import quota_judgement
from criproxy.deviceplugin.usage.quota_judgement import Judgement
from tests.devices.usage.histories import Read, Said, expected, histories, judged

MANY = 600
"""Histories: each plant is found in several of them."""


@cache
def _some() -> list[list[Read]]:
    """The same histories for all: to make them up takes longer than to judge them."""
    found: list[list[Read]] = []

    @settings(max_examples=MANY, phases=[Phase.generate])
    @given(histories())
    def keep(steps: list[Read]) -> None:
        found.append(steps)

    keep()
    return found


def test_the_judgement_is_that_of_the_oracle() -> None:
    """It says the same at the same reading, over pauses, restarts, other plans, and containers that go and come."""
    for steps in _some():
        assert sorted(judged(steps), key=_order) == sorted(expected(steps), key=_order), steps


def _order(said: Said) -> tuple[int, str, str]:
    return said[0], said[1], said[2]


def _differs(steps: list[Read]) -> bool:
    try:
        return sorted(judged(steps), key=_order) != sorted(expected(steps), key=_order)
    except (AssertionError, KeyError):
        return True


def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Judgement._read

    def impatient(self: Judgement, *arguments: object) -> object:
        return read(replace(self, plan=replace(self.plan, grace_s=0.0)), *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Judgement, "_read", impatient)


def _counts_anew_at_each_break(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Judgement._read

    def forgiving(self: Judgement, before: object, *arguments: object) -> object:
        found = read(self, before, *arguments)  # type: ignore[arg-type]
        return found if found.over_since_s is not None else found._replace(excess=0.0)

    monkeypatch.setattr(Judgement, "_read", forgiving)


def _counts_anew_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = quota_judgement._Series.paused
    monkeypatch.setattr(quota_judgement._Series, "paused", lambda self: paused(self)._replace(excess=0.0))


def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judgement, "resumed", lambda self, *_: self)


def _no_hysteresis(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Judgement._read

    def plain(self: Judgement, before: object, *arguments: object) -> object:
        found = read(self, before, *arguments)  # type: ignore[arg-type]
        return found._replace(is_incident=found.is_incident and found.over_since_s is not None)

    monkeypatch.setattr(Judgement, "_read", plain)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(_no_grace, id="no-grace"),
        pytest.param(_counts_anew_at_each_break, id="a-break-forgives-all"),
        pytest.param(_counts_anew_after_a_pause, id="a-pause-forgives-all"),
        pytest.param(_forgets, id="restart-forgets"),
        pytest.param(_no_hysteresis, id="within-margin-ends"),
        pytest.param(lambda patch: patch.setattr(quota_judgement, "PAUSE_PERIODS", 1000.0), id="pauses-count"),
        pytest.param(lambda patch: patch.setattr(quota_judgement, "MEAN_OF", 4), id="mean-of-four"),
        pytest.param(lambda patch: patch.setattr(quota_judgement, "ALL_CORES_PERCENT", 1e9), id="more-than-all-cores"),
        pytest.param(lambda patch: patch.setattr(Judgement, "_margin", lambda self, key: 0), id="no-margin"),
        pytest.param(
            lambda patch: patch.setattr(Judgement, "with_plan", lambda self, plan: replace(self, plan=plan)),
            id="another-plan-goes-on",
        ),
    ],
)
def test_planted_mistakes_are_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """The oracle notices a judgement that breaks one rule."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert any(map(_differs, _some()))
