"""Findings for people (two tables) and for programs (JSON)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from lab import provenance
from lab.bench.bars import MIB, Check
from lab.bench.measure import Series
from lab.bench.plan import LIST, Findings, Run
from lab.bench.verdicts import CallLine, ProcessLine, call_lines, missed, process_lines
from lab.bench.ways import DIRECT

_BUSY = 1.5
"""Load per CPU above which others must have run: we and the runtime are about one at a time."""


def show(console: Console, findings: Findings) -> None:
    """Print the tables of one runtime, and what missed its bar."""
    console.print(_calls_table(findings))
    console.print(_process_table(findings))
    if findings.load_per_cpu > _BUSY:
        console.print(f"[yellow]the machine was busy (load {findings.load_per_cpu:.1f} per CPU): times are too high[/]")
    over = missed(findings)
    if over:
        names = sorted({line.call if isinstance(line, CallLine) else line.what for line in over})
        console.print(f"[bold red]over the bar on {findings.runtime}:[/] {'; '.join(names)}")
    else:
        console.print(f"[green]every bar holds on {findings.runtime}[/]")


def _calls_table(findings: Findings) -> Table:
    runs = len(next(iter(findings.rows.values()), []))
    table = Table(
        title=f"Calls through {findings.runtime}: µs, medians of {runs} runs; beside a bar the worst run",
        caption="added: over the direct median, round by round. CPU: of the process behind the way, per call.",
    )
    for name in ("call", "known", "way"):
        table.add_column(name, no_wrap=True)
    for name in ("median", "p99", "added", "bar", "CPU", "bar", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for line in call_lines(findings):
        table.add_row(*_call_cells(line, findings.reply_bytes))
    return table


def _call_cells(line: CallLine, reply_bytes: Mapping[int, int]) -> list[str]:
    times = line.added or line.added_p99
    added = line.added_p99_us if line.added_p99 else line.added_us
    mark = " p99" if line.added_p99 else ""
    return [
        _title(line, reply_bytes) if line.way == DIRECT else "",
        str(line.known) if line.way == DIRECT else "",
        line.way,
        f"{line.median_us:.0f}",
        f"{line.p99_us:.0f}",
        "" if added is None else f"{added:+.0f}{mark}",
        _against(times),
        f"{line.cpu_us:.0f}",
        _against(line.cpu),
        _verdict(line.checks),
    ]


def _title(line: CallLine, reply_bytes: Mapping[int, int]) -> str:
    return f"{line.call} ({reply_bytes[line.known] / 1000:.0f} kB)" if line.call == LIST else line.call


def _process_table(findings: Findings) -> Table:
    table = Table(title=f"The process in front of {findings.runtime}")
    for name in ("what", "way"):
        table.add_column(name)
    for name in ("figure", "bar", ""):
        table.add_column(name, justify="right")
    for line in process_lines(findings):
        table.add_row(*_process_cells(line))
    return table


def _process_cells(line: ProcessLine) -> list[str]:
    factor = MIB if line.unit == "MiB" else 1
    digits = 3 if line.unit == "s" else 1
    bar = ""
    if line.check:
        bar = f"{line.check.value / factor:.{digits}f} ≤ {line.check.limit / factor:.{digits}f}"
    figure = f"{line.value / factor:.{digits}f} {line.unit}"
    return [line.what, line.way, figure, bar, _verdict(line.checks)]


def _against(check: Check | None) -> str:
    return f"{check.value:.0f} ≤ {check.limit:.0f}" if check else ""


def _verdict(checks: list[Check]) -> str:
    if not checks:
        return ""
    return "[green]ok[/]" if all(check.ok for check in checks) else "[bold red]over[/]"


def as_json(all_findings: Sequence[Findings]) -> dict[str, Any]:
    """Machine, versions, every line of the tables, and the medians of every round."""
    return {
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "runtimes": {findings.runtime: _findings(findings) for findings in all_findings},
    }


def _findings(findings: Findings) -> dict[str, Any]:
    return {
        "ok": not missed(findings),
        "calls": [{**asdict(line), "ok": all(c.ok for c in line.checks)} for line in call_lines(findings)],
        "process": [{**asdict(line), "ok": all(c.ok for c in line.checks)} for line in process_lines(findings)],
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
