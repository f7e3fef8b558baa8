"""Figures for people (tables) and for programs (JSON)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console

from lab import provenance
from lab.bench import bars
from lab.bench.bars import UNSCALED, Bar, Speed
from lab.bench.plan import CRIPROXY, LOADED_AT, UNDER_CREATES, VERSION, Findings, Run
from lab.bench.ways import DIRECT, Series
from lab.figures import Figure, table

_MIB = 1 << 20


def call_figures(findings: Findings) -> Iterator[Figure]:
    """Every row, all ways, in µs."""
    for (call, known), runs in findings.rows.items():
        for way in runs[0].result:
            yield from _row(call, known, way, runs)


def _row(call: str, known: int, way: str, runs: list[Run]) -> Iterator[Figure]:
    def figure(name: str, value: Callable[[Series, Series], float], bar: Bar | None = None) -> Figure:
        values = [value(run.result[way], run.result[DIRECT]) for run in runs]
        limited = _worst(values, [run.speed for run in runs], bar if way == CRIPROXY else None)
        return Figure(f"{call}, {known} known", way, name, limited[0], "µs", limited[1])

    yield figure("median", lambda mine, _: mine.median_us)
    yield figure("p99", lambda mine, _: mine.p99_us)
    if way != DIRECT:
        yield figure("added", lambda mine, direct: mine.added_us(direct), bars.ADDED_US.get((call, known)))
        under_load = bars.ADDED_P99_US if call == UNDER_CREATES else None
        yield figure("added p99", lambda mine, direct: mine.p99_us - direct.p99_us, under_load)
    yield figure("CPU", lambda mine, _: mine.cpu_us, bars.CPU_US.get((call, known)))


def _worst(values: list[float], speeds: list[Speed], bar: Bar | None) -> tuple[float, float | None]:
    """Of several runs the value that counts, and its limit: each run is judged by the bar of its own moment."""
    if bar is None:
        return median(values), None
    limits = [speed.limit(bar) for speed in speeds]
    return max(zip(values, limits, strict=True), key=lambda pair: pair[0] / pair[1])


def process_figures(findings: Findings) -> Iterator[Figure]:
    """Start and memory."""
    if findings.starts:
        what = f"start, {LOADED_AT} known"
        medians_s = [median(start.answer_s for start in run) for run in findings.starts]
        rows = findings.rows.get((VERSION, LOADED_AT), [])
        speeds = [run.speed for run in rows] or [UNSCALED] * len(medians_s)
        value, limit = _worst(medians_s, speeds, bars.START_S)
        yield Figure(what, CRIPROXY, "exec to first Version", value, "s", limit)
        starts = [start for run in findings.starts for start in run]
        yield Figure(what, CRIPROXY, "exec to READY", median(start.ready_s for start in starts), "s")
        yield Figure(what, CRIPROXY, "CPU until then", median(start.cpu_s for start in starts), "s")
    least = min(findings.memory, default=0)
    for known, of in findings.memory.items():
        for way, memory in of.items():
            grown = memory.rss_bytes - findings.memory[least][way].rss_bytes
            for name, size_bytes, bar in (
                ("RSS", memory.rss_bytes, bars.MEMORY_MIB),
                ("USS", memory.uss_bytes, None),
                ("RSS above least", grown, bars.MEMORY_GROWTH_MIB),
            ):
                limit = bar.limit if bar and way == CRIPROXY and known >= 1000 else None
                if way != DIRECT:
                    yield Figure(f"memory, {known} known", way, name, size_bytes / _MIB, "MiB", limit)


def figures_of(findings: Findings) -> list[Figure]:
    """All figures of one runtime."""
    return [*call_figures(findings), *process_figures(findings)]


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
