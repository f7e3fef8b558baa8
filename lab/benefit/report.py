"""The report: JSON for programs, with all raw data, and the blocks of the pages for people."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from lab import provenance
from lab.benefit import figures, noise, pages
from lab.benefit.cases import Plan
from lab.benefit.cgroups import NodeCgroups
from lab.benefit.equipment import Equipment
from lab.benefit.rounds import Run

FORMAT = 1
_BY_LINE = ("calibrations_s", "learned_s", "samples")
"""The raw data with a line for each item."""


def build(
    plan: Plan, run: Run, equipment: Equipment, cgroups: NodeCgroups, left_out: Mapping[str, str]
) -> dict[str, Any]:
    """The report without costs and simulations."""
    without = {case.name: run.samples(case.name, case.managers[0].name) for case in plan.cases}
    direct = {name: [sample.value for sample in samples] for name, samples in without.items()}
    neighbours = {
        case.name: [sample.neighbours_per_s for sample in without[case.name]]
        for case in plan.cases
        if case.neighbours.count
    }
    complaints = _complaints(plan, run, direct, neighbours) if plan.has_figures else []
    return {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "has_figures": plan.has_figures,
        "usable": plan.has_figures and not complaints,
        "complaints": complaints,
        "limits": noise.LIMITS,
        "spreads": {
            "calibration": round(noise.spread_of_cpus(run.calibrations_s()), 4),
            "direct": {name: round(noise.spread(values), 4) for name, values in direct.items()},
            "neighbours": {name: round(noise.spread(values), 4) for name, values in neighbours.items()},
        },
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds, "seed": plan.seed, "took_s": round(run.took_s)},
        "left_out": dict(left_out),
        "repeated": run.repeated,
        "gate": {
            "reference_s": noise.rounded(run.gate.reference_s),
            "waited_s": round(run.gate.waited_s),
            "dropped_s": round(run.gate.dropped_s),
            "taken_again": len(run.gate.taken_again),
            "unusual": run.unusual(),
        },
        "machine": provenance.machine() | {"cgroups": f"v{cgroups.version}"},
        "versions": provenance.versions() | equipment.versions(),
        "policies": {manager.name: manager.policy for case in plan.cases for manager in case.managers},
        "cases": figures.cases(plan, run, equipment) if plan.has_figures else [],
        "raw": {
            "calibrations_s": [noise.rounded(each) for each in run.calibrations_s()],
            "learned_s": [noise.rounded(each) for each in run.gate.learned_s],
            "taken_again": run.gate.taken_again,
            "samples": [each.as_json() for each in run.taken],
            "cases": [asdict(case) for case in plan.cases],
        },
    }


def _complaints(
    plan: Plan, run: Run, direct: Mapping[str, Sequence[float]], neighbours: Mapping[str, Sequence[float]]
) -> list[str]:
    """Judge a case whose figures differ on any machine by its neighbours, if there are any."""
    erratic = {case.name for case in plan.cases if case.is_judged_by_neighbours}
    return noise.complaints(
        run.calibrations_s(),
        {name: values for name, values in direct.items() if name not in erratic},
        {name: values for name, values in neighbours.items() if name in erratic},
        [each.sample.stolen for each in run.taken],
    )


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print the figures, or that there are none."""
    if not report["has_figures"]:
        console.print(f"{len(report['raw']['samples'])} samples taken; a quick run has no figures")
        return
    for block in (pages.gains, pages.why, pages.percentiles, pages.cost, pages.simulated):
        console.print(Markdown(block(report)))
    gate = report["gate"]
    waited = f"waited {gate['waited_s']} s for the machine's usual speed, took {gate['taken_again']} samples again"
    console.print(f"{waited}; {gate['unusual']} count although the speed was another one")
    for reason in report["complaints"]:
        console.print(f"[red]noisy:[/] {reason}")
    verdict = "[green]usable[/]" if report["usable"] else "[bold red]UNUSABLE: the machine was too noisy[/]"
    console.print(f"{verdict}; {report['plan']['rounds']} rounds in {report['plan']['took_s']} s")


def disagreements(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The gains of two reports whose intervals do not overlap."""
    there = {(case["name"], row["name"]): row for case in second["cases"] for row in case["managers"]}
    return [
        f"{case['name']} {row['name']}"
        for case in first["cases"]
        for row in case["managers"]
        if (other := there.get((case["name"], row["name"])))
        and not pages.overlap(row["shorter_percent"], other["shorter_percent"])
    ]


def dump(report: Mapping[str, Any]) -> str:
    """As JSON, with a line for each sample and each calibration."""
    raw = report["raw"]
    text = json.dumps({**report, "raw": {**raw, **{name: [] for name in _BY_LINE}}}, indent=1)
    for name in _BY_LINE:
        lines = ",\n".join("   " + json.dumps(each) for each in raw[name])
        text = text.replace(f'"{name}": []', f'"{name}": [\n{lines}\n  ]')
    return text + "\n"
