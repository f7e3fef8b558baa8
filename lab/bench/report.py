"""Figures for people (tables) and for programs (JSON)."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from lab import provenance
from lab.bench.plan import Findings
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
    """Machine, versions, and every figure by runtime."""
    return {
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "runtimes": {each.runtime: [asdict(figure) for figure in figures_of(each)] for each in all_findings},
        "steps": [asdict(figure) for figure in steps],
    }
