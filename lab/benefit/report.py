"""The report: JSON for programs, with all raw data, and the blocks of the pages for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from lab import provenance
from lab.benefit import pages
from lab.benefit.cases import Case, Plan
from lab.benefit.cgroups import NodeCgroups
from lab.benefit.equipment import Equipment
from lab.benefit.rounds import LIMITS, Run, complaints
from lab.benefit.samples import Sample

FORMAT = 1


def build(
    plan: Plan, run: Run, equipment: Equipment, cgroups: NodeCgroups, left_out: Mapping[str, str]
) -> dict[str, Any]:
    """The report without costs and simulations."""
    without = {case.name: run.samples(case.name, case.managers[0].name) for case in plan.cases}
    direct = {name: [sample.value for sample in samples] for name, samples in without.items()}
    neighbours = {name: [sample.neighbours_per_s for sample in samples] for name, samples in without.items()}
    erratic = {case.name for case in plan.cases if case.workload.is_erratic}  # judged by its neighbours
    noisy = complaints(
        [each.calibrated_s for each in run.taken],
        {name: values for name, values in direct.items() if name not in erratic},
        {name: values for name, values in neighbours.items() if name in erratic},
        [each.sample.stolen for each in run.taken],
    )
    noisy = noisy if plan.has_figures else []
    return {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "has_figures": plan.has_figures,
        "usable": plan.has_figures and not noisy,
        "complaints": noisy,
        "limits": LIMITS,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds, "seed": plan.seed, "took_s": round(run.took_s)},
        "left_out": dict(left_out),
        "repeated": run.repeated,
        "usual_s": run.usual_s,
        "machine": provenance.machine() | {"cgroups": f"v{cgroups.version}"},
        "versions": provenance.versions() | equipment.versions(),
        "policies": {manager.name: manager.policy for case in plan.cases for manager in case.managers},
        "cases": _cases(plan, run, equipment) if plan.has_figures else [],
        "raw": {"samples": [each.as_json() for each in run.taken]},
    }


# ---------------------------------------------------------------- figures


def _cases(plan: Plan, run: Run, equipment: Equipment) -> list[dict[str, Any]]:
    """All cases with medians and their intervals for all managers."""
    series = {name: values for case in plan.cases for name, values in _series(case, run) if values}
    intervals = _intervals(series, equipment)
    figures = {
        name: dict(zip(("median", "low", "high"), map(_rounded, (median(values), *intervals[name])), strict=True))
        for name, values in series.items()
    }
    return [_case(case, run, figures) for case in plan.cases]


def _intervals(series: Mapping[str, Sequence[float]], equipment: Equipment) -> dict[str, list[float]]:
    """Name → low and high of the interval of the median, by the bootstrap of scipy, which the equipment has."""
    done = equipment.run("-m", "lab.benefit.programs.intervals", told=json.dumps(series))
    done.check_returncode()
    return dict(json.loads(done.stdout))


def _series(case: Case, run: Run) -> Iterator[tuple[str, list[float]]]:
    """Name → the values whose median is a figure; gains and losses are compared round by round, in percent."""
    direct = run.samples(case.name, case.managers[0].name)
    for manager in case.managers:
        pairs = list(zip(run.samples(case.name, manager.name), direct, strict=True))
        prefix = f"{case.name} {manager.name}"
        yield f"{prefix} value", [mine.value for mine, _ in pairs]
        yield f"{prefix} gain", [100 * (1 - mine.value / its.value) for mine, its in pairs if its.value]
        done = [(mine.neighbours_per_s, its.neighbours_per_s) for mine, its in pairs]
        yield f"{prefix} loss", [100 * (1 - mine / its) for mine, its in done if its]


def _case(case: Case, run: Run, figures: Mapping[str, dict[str, float]]) -> dict[str, Any]:
    workload = case.workload
    return {
        "name": case.name,
        "workload": workload.title,
        "neighbours": case.neighbours.title,
        "metric": workload.metric.title,
        "unit": workload.metric.unit,
        "request_milli": workload.request_milli,
        "limit_milli": workload.limit_milli,
        "managers": [
            {
                "name": manager.name,
                "title": manager.title,
                "value": figures.get(f"{case.name} {manager.name} value"),
                "shorter_percent": figures.get(f"{case.name} {manager.name} gain"),
                "neighbours_lose_percent": figures.get(f"{case.name} {manager.name} loss"),
                **_observed(run.samples(case.name, manager.name)),
            }
            for manager in case.managers
        ],
    }


def _observed(samples: Sequence[Sample]) -> dict[str, Any]:
    """What explains a figure: CPUs, threads, waiting, throttling; and the other percentiles of a service."""
    details = [sample.details for sample in samples]
    names = [name for name in ("threads", "p50_ms", "p99_ms", "p999_ms", "sent_late_p99_ms") if name in details[0]]
    times = ("cpu_s", "waited_s", "throttled_s")
    return {
        "cpus": sorted({sample.cpus for sample in samples}),
        "neighbours_cpus": sorted({cpus for sample in samples for cpus in sample.neighbours_cpus}),
        **{name: _rounded(median(getattr(sample, name) for sample in samples)) for name in times},
        **{name: _rounded(median(float(each[name]) for each in details)) for name in names},
    }


def _rounded(value: float) -> float:
    """Four digits that count: more would be noise, and a page that shows three rounds once."""
    return float(f"{value:.4g}")


# ---------------------------------------------------------------- for people and programs


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print the figures, or that there are none."""
    if not report["has_figures"]:
        console.print(f"{len(report['raw']['samples'])} samples taken; a quick run has no figures")
        return
    for block in (pages.gains, pages.why, pages.percentiles, pages.simulated):
        console.print(Markdown(block(report)))
    for reason in report["complaints"]:
        console.print(f"[red]noisy:[/] {reason}")
    verdict = "[green]usable[/]" if report["usable"] else "[bold red]UNUSABLE: the machine was too noisy[/]"
    plan = report["plan"]
    console.print(f"{verdict}; {plan['rounds']} rounds in {plan['took_s']} s, {len(report['repeated'])} samples again")


def dump(report: Mapping[str, Any]) -> str:
    """As JSON, with a line for each sample."""
    lines = ",\n".join("   " + json.dumps(each) for each in report["raw"]["samples"])
    text = json.dumps({**report, "raw": {"samples": []}}, indent=1)
    return text.replace('"samples": []', f'"samples": [\n{lines}\n  ]') + "\n"
