"""From samples to figures: medians, what was gained, what the neighbours lost; each with its interval."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.benefit.cases import Case, Plan
from lab.benefit.equipment import ROOT, Equipment
from lab.benefit.rounds import Run, median
from lab.benefit.samples import Sample

Intervals = Callable[[Mapping[str, Sequence[float]]], dict[str, list[float]]]
"""Name → values to name → low and high of the interval of their median."""


def by_scipy(equipment: Equipment) -> Intervals:
    """The bootstrap of scipy, in the interpreter of the equipment."""

    def intervals(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        command = [str(equipment.python), "-m", "lab.benefit.programs.intervals"]
        environment = {**os.environ, **equipment.environment}
        asked = json.dumps({name: list(each) for name, each in values.items() if each})
        done = subprocess.run(
            command, cwd=ROOT, env=environment, input=asked, capture_output=True, text=True, check=True
        )
        found: dict[str, list[float]] = json.loads(done.stdout)
        return found

    return intervals


def ratios(values: Sequence[float], direct: Sequence[float]) -> list[float]:
    """Round by round, *values* in parts of *direct*; rounds whose direct value is 0 are left out."""
    return [mine / its for mine, its in zip(values, direct, strict=True) if its]


def gains(values: Sequence[float], direct: Sequence[float]) -> list[float]:
    """By which part less each round was than without a manager, in percent; negative: more."""
    return [100 * (1 - ratio) for ratio in ratios(values, direct)]


def cases(plan: Plan, run: Run, intervals: Intervals) -> list[dict[str, Any]]:
    """All cases with the figures of all managers."""
    series = dict[str, Sequence[float]]()
    for case in plan.cases:
        series |= _series(case, run)
    found = intervals(series)
    return [_case(case, run, series, found) for case in plan.cases]


def _series(case: Case, run: Run) -> dict[str, Sequence[float]]:
    """Name → the values whose median is a figure."""
    base = case.managers[0].name
    series: dict[str, Sequence[float]] = {}
    for manager in case.managers:
        prefix = f"{case.name} {manager.name}"
        values, theirs = run.values(case.name, manager.name), _neighbours(run.samples(case.name, manager.name))
        series[f"{prefix} value"] = values
        series[f"{prefix} gain"] = gains(values, run.values(case.name, base))
        series[f"{prefix} loss"] = gains(theirs, _neighbours(run.samples(case.name, base)))
    return series


def _neighbours(samples: Sequence[Sample]) -> list[float]:
    return [sample.neighbours_per_s for sample in samples]


def _case(
    case: Case, run: Run, series: Mapping[str, Sequence[float]], intervals: Mapping[str, list[float]]
) -> dict[str, Any]:
    def figure(manager: str, what: str) -> dict[str, float] | None:
        name = f"{case.name} {manager} {what}"
        if not series[name]:
            return None
        low, high = intervals[name]
        return {"median": _rounded(median(list(series[name]))), "low": _rounded(low), "high": _rounded(high)}

    rows = [
        {
            "name": manager.name,
            "title": manager.title,
            "value": figure(manager.name, "value"),
            "shorter_percent": figure(manager.name, "gain"),
            "neighbours_lose_percent": figure(manager.name, "loss"),
            **_observed(run.samples(case.name, manager.name)),
        }
        for manager in case.managers
    ]
    workload = case.workload
    return {
        "name": case.name,
        "workload": workload.title,
        "neighbours": case.neighbours.title,
        "metric": workload.metric.title,
        "unit": workload.metric.unit,
        "request_milli": workload.request_milli,
        "limit_milli": workload.limit_milli,
        "managers": rows,
    }


def _observed(samples: Sequence[Sample]) -> dict[str, Any]:
    """What explains a figure: CPUs, threads, waiting, throttling; and the other percentiles of a service."""
    details = [sample.details for sample in samples]
    names = [name for name in ("threads", "p50_ms", "p99_ms", "p999_ms", "sent_late_p99_ms") if name in details[0]]
    return {
        "cpus": sorted({sample.cpus for sample in samples}),
        "neighbours_cpus": sorted({cpus for sample in samples for cpus in sample.neighbours_cpus}),
        "cpu_s": _rounded(median([sample.cpu_s for sample in samples])),
        "waited_s": _rounded(median([sample.waited_s for sample in samples])),
        "throttled_s": _rounded(median([sample.throttled_s for sample in samples])),
        **{name: _rounded(median([float(each[name]) for each in details])) for name in names},
    }


def _rounded(value: float) -> float:
    """Four digits that count: more would be noise, and a page that shows three rounds once."""
    return float(f"{value:.4g}")
