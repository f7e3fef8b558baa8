"""From samples to figures: medians, what was gained, what the neighbours lost; each with its interval."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from lab.benefit.cases import Case, Plan
from lab.benefit.equipment import Equipment
from lab.benefit.rounds import Run
from lab.benefit.samples import Sample
from lab.provenance import ROOT


def cases(plan: Plan, run: Run, equipment: Equipment) -> list[dict[str, Any]]:
    """All cases with the figures of all managers."""
    series = {name: values for case in plan.cases for name, values in _series(case, run)}
    intervals = _intervals(series, equipment)
    return [_case(case, run, series, intervals) for case in plan.cases]


def _intervals(series: Mapping[str, Sequence[float]], equipment: Equipment) -> dict[str, list[float]]:
    """Name → low and high of the interval of the median, by the bootstrap of scipy, which the equipment has."""
    command = [str(equipment.python), "-m", "lab.benefit.programs.intervals"]
    environment = {**os.environ, **equipment.environment}
    asked = json.dumps({name: values for name, values in series.items() if values})
    done = subprocess.run(command, cwd=ROOT, env=environment, input=asked, capture_output=True, text=True, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def _series(case: Case, run: Run) -> Iterator[tuple[str, Sequence[float]]]:
    """Name → the values whose median is a figure."""
    direct = run.samples(case.name, case.managers[0].name)
    for manager in case.managers:
        pairs = list(zip(run.samples(case.name, manager.name), direct, strict=True))
        prefix = f"{case.name} {manager.name}"
        yield f"{prefix} value", [mine.value for mine, _ in pairs]
        yield f"{prefix} gain", _gains((mine.value, its.value) for mine, its in pairs)
        yield f"{prefix} loss", _gains((mine.neighbours_per_s, its.neighbours_per_s) for mine, its in pairs)


def _gains(rounds: Iterable[tuple[float, float]]) -> list[float]:
    """By which part less each round was than without a manager, in percent; rounds with nothing to compare are left."""
    return [100 * (1 - mine / its) for mine, its in rounds if its]


def _case(
    case: Case, run: Run, series: Mapping[str, Sequence[float]], intervals: Mapping[str, list[float]]
) -> dict[str, Any]:
    def figure(manager: str, what: str) -> dict[str, float] | None:
        name = f"{case.name} {manager} {what}"
        if not series[name]:
            return None
        low, high = intervals[name]
        return {"median": _rounded(median(series[name])), "low": _rounded(low), "high": _rounded(high)}

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
        **{
            name: _rounded(median(getattr(sample, name) for sample in samples))
            for name in ("cpu_s", "waited_s", "throttled_s")
        },
        **{name: _rounded(median(float(each[name]) for each in details)) for name in names},
    }


def _rounded(value: float) -> float:
    """Four digits that count: more would be noise, and a page that shows three rounds once."""
    return float(f"{value:.4g}")
