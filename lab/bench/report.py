"""Figures for people (tables) and for programs (JSON)."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from lab import provenance
from lab.bench.measure import Series
from lab.bench.plan import Findings, Run
from lab.bench.verdicts import call_figures, figures_of, process_figures
from lab.figures import Figure, table

_BUSY = 1.5
"""Load per CPU above which others must have run: we and the runtime are about one at a time."""


def show(console: Console, findings: Findings) -> None:
    """Print the tables of one runtime, and what missed its bar."""
    runs = len(next(iter(findings.rows.values()), []))
    title = f"Calls through {findings.runtime}: medians of {runs} runs; beside a bar the worst run"
    console.print(table(title, call_figures(findings)))
    console.print(table(f"The process in front of {findings.runtime}", process_figures(findings)))
    if findings.load_per_cpu > _BUSY:
        console.print(f"[yellow]the machine was busy (load {findings.load_per_cpu:.1f} per CPU): times are too high[/]")
    if over := sorted({figure.what for figure in figures_of(findings) if not figure.ok}):
        console.print(f"[bold red]over the bar on {findings.runtime}:[/] {'; '.join(over)}")
    else:
        console.print(f"[green]every bar holds on {findings.runtime}[/]")


def as_json(all_findings: Sequence[Findings], steps: Sequence[Figure]) -> dict[str, Any]:
    """Machine, versions, every figure, and the medians of every round."""
    return {
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "runtimes": {findings.runtime: _findings(findings) for findings in all_findings},
        "steps": [asdict(figure) for figure in steps],
    }


def _findings(findings: Findings) -> dict[str, Any]:
    figures = figures_of(findings)
    return {
        "ok": all(figure.ok for figure in figures),
        "figures": [asdict(figure) for figure in figures],
        "list_reply_bytes": findings.reply_bytes,
        "load_per_cpu": findings.load_per_cpu,
        "starts": [[start._asdict() for start in run] for run in findings.starts],
        "raw": [
            {"call": call, "known": known, "runs": [_run(run) for run in runs]}
            for (call, known), runs in findings.rows.items()
        ],
    }


def _run(run: Run) -> dict[str, Any]:
    return {"speed": run.speed.factors, "ways": {name: _series(series) for name, series in run.result.items()}}


def _series(series: Series) -> dict[str, Any]:
    return {
        "median_us": series.median_us,
        "p99_us": series.p99_us,
        "cpu_us": series.cpu_us,
        "mean_cpu_us": series.mean_cpu_us,
        "rounds": [{"median_us": b.median_us, "cpu_us": b.cpu_us, "calls": len(b.calls_ns)} for b in series.batches],
    }
