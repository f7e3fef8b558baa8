"""Figures for people (tables) and for programs (JSON)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console

from lab import provenance
from lab.bench import bars
from lab.bench.bars import UNSCALED, Bar, Speed
from lab.bench.plan import CREATE, CRIPROXY, LOADED_AT, UNDER_CREATES, VERSION, Findings, Run
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
        has_bar = call == UNDER_CREATES or (call, known) == (CREATE, LOADED_AT)
        limit = bars.ADDED_P99_US if has_bar else None
        yield figure("added p99", lambda mine, direct: mine.p99_us - direct.p99_us, limit)
    yield figure("CPU", lambda mine, _: mine.cpu_us, bars.CPU_US.get((call, known)))


def _worst(values: list[float], speeds: list[Speed], bar: Bar | None) -> tuple[float, float | None]:
    """Of several runs the value that counts, and its limit: each run is judged by the bar of its own moment."""
    if bar is None:
        return median(values), None
    limits = [speed.limit(bar) for speed in speeds]
    return max(zip(values, limits, strict=True), key=lambda pair: pair[0] / pair[1])


def life_figures(findings: Findings) -> Iterator[Figure]:
    """What comes and goes, and what rests."""
    for way, lives in findings.lives.items():
        what = "create and remove"
        yield _of_process(findings, what, way, "CPU", [each.cpu_us for each in lives], "µs", bars.LIFE_CPU_US)
        written_kb = [each.written_bytes / 1000 for each in lives]
        yield _of_process(findings, what, way, "written", written_kb, "kB", bars.LIFE_WRITTEN_KB)
    for way, rests in findings.rests.items():
        what, wakeups = "at rest", [each.wakeups_per_s for each in rests]
        percents = [100 * each.cpu_ratio for each in rests]
        yield _of_process(findings, what, way, "CPU", percents, "%", bars.REST_PERCENT)
        yield _of_process(findings, what, way, "wake-ups", wakeups, "/s", bars.WAKEUPS_PER_S)
        yield _of_process(findings, what, way, "threads", [each.threads for each in rests], "", bars.THREADS)


def _of_process(
    findings: Findings, what: str, way: str, name: str, values: list[float], unit: str, bar: Bar | None = None
) -> Figure:
    speeds = [run.speed for run in findings.rows.get((VERSION, LOADED_AT), [])] or [UNSCALED] * len(values)
    value, limit = _worst(values, speeds, bar if way == CRIPROXY else None)
    return Figure(f"{what}, {LOADED_AT} known", way, name, value, unit, limit)


def start_figures(findings: Findings) -> Iterator[Figure]:
    """Until the first answers."""
    for name, runs, bar in (
        ("exec to first Version", findings.starts, bars.START_S),
        ("exec to first create", findings.creating, bars.FIRST_CREATE_S),
    ):
        if runs:
            medians_s = [median(start.answer_s for start in run) for run in runs]
            yield _of_process(findings, "start", CRIPROXY, name, medians_s, "s", bar)
    if starts := [start for run in findings.starts for start in run]:
        yield _of_process(findings, "start", CRIPROXY, "exec to READY", [start.ready_s for start in starts], "s")
        yield _of_process(findings, "start", CRIPROXY, "CPU until then", [start.cpu_s for start in starts], "s")


def memory_figures(findings: Findings) -> Iterator[Figure]:
    """Resident, private, and how both grow."""
    least = min(findings.memory, default=0)
    for known, of in findings.memory.items():
        few, many = known == LOADED_AT, known >= 1000
        for way, memory in of.items():
            grown = memory.rss_bytes - findings.memory[least][way].rss_bytes
            for name, size_bytes, bar in (
                ("RSS", memory.rss_bytes, bars.FEW_MIB if few else bars.MEMORY_MIB if many else None),
                ("USS", memory.uss_bytes, bars.FEW_UNSHARED_MIB if few else None),
                ("RSS above least", grown, bars.MEMORY_GROWTH_MIB if many else None),
            ):
                limit = bar.limit if bar and way == CRIPROXY else None
                if way != DIRECT:
                    yield Figure(f"memory, {known} known", way, name, size_bytes / _MIB, "MiB", limit)


_TABLES = {
    "Calls": call_figures,
    "Lives and rest": life_figures,
    "Start": start_figures,
    "Memory": memory_figures,
}


def figures_of(findings: Findings) -> list[Figure]:
    """All figures of one runtime."""
    return [figure for of in _TABLES.values() for figure in of(findings)]


_BUSY = 1.5
"""Load per CPU above which others must have run: we and the runtime are about one at a time."""


def show(console: Console, findings: Findings) -> None:
    """Print the tables of one runtime, and what missed its bar."""
    runs = len(next(iter(findings.rows.values()), []))
    for title, of in _TABLES.items():
        console.print(
            table(f"{title} through {findings.runtime}: medians of {runs} runs; bars: the worst", of(findings))
        )
    if findings.load_per_cpu > _BUSY:
        console.print(f"[yellow]the machine was busy (load {findings.load_per_cpu:.1f} per CPU): times are too high[/]")
    if over := sorted({figure.what for figure in figures_of(findings) if not figure.ok}):
        console.print(f"[bold red]over the bar on {findings.runtime}:[/] {'; '.join(over)}")
    else:
        console.print(f"[green]every bar holds on {findings.runtime}[/]")


def as_json(all_findings: Sequence[Findings], steps: Sequence[Figure], of_classes: Sequence[Figure]) -> dict[str, Any]:
    """Machine, versions, and every figure by runtime."""
    return {
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "runtimes": {each.runtime: [asdict(figure) for figure in figures_of(each)] for each in all_findings},
        "steps": [asdict(figure) for figure in steps],
        "classes": [asdict(figure) for figure in of_classes],
    }
