"""From findings to lines: every figure of the worst run, with its bar and whether it keeps it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from lab.bench import bars
from lab.bench.bars import UNSCALED, Bar, Check, worst
from lab.bench.measure import Series
from lab.bench.plan import ANNOTATE, CREATE, CRIPROXY, LOADED_AT, UNDER_CREATES, VERSION, Findings, Run
from lab.bench.ways import DIRECT, Memory


@dataclass(frozen=True, slots=True)
class CallLine:
    """One way in one row: medians over the runs, and the checks of the worst run. Times in µs."""

    runtime: str
    call: str
    known: int
    way: str
    median_us: float
    p99_us: float
    added_us: float | None
    """Over direct; None for the direct way itself."""
    added_p99_us: float | None
    cpu_us: float
    added: Check | None = None
    added_p99: Check | None = None
    cpu: Check | None = None

    @property
    def checks(self) -> list[Check]:
        """The figures that have bars."""
        return [check for check in (self.added, self.added_p99, self.cpu) if check]


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """A figure of a process, in *unit*, as a check where it has a bar."""

    runtime: str
    what: str
    way: str
    unit: str
    value: float
    check: Check | None = None

    @property
    def checks(self) -> list[Check]:
        """The figure, if it has a bar."""
        return [self.check] if self.check else []


def call_lines(findings: Findings) -> Iterator[CallLine]:
    """Every row, all ways."""
    for (call, known), runs in findings.rows.items():
        for way in runs[0].result:
            yield _call_line(findings.runtime, call, known, way, runs)


def _call_line(runtime: str, call: str, known: int, way: str, runs: list[Run]) -> CallLine:
    def over(value: Callable[[Series, Series], float]) -> list[float]:
        return [value(run.result[way], run.result[DIRECT]) for run in runs]

    def check(values: list[float], bar: Bar | None) -> Check | None:
        return worst([Check(v, run.speed.limit(bar)) for v, run in zip(values, runs, strict=True)]) if bar else None

    added, cpu = over(lambda mine, direct: mine.added_us(direct)), over(lambda mine, _: mine.cpu_us)
    added_p99 = over(lambda mine, direct: mine.p99_us - direct.p99_us)
    added_bar, p99_bar, cpu_bar = _bars(call, known, way)
    return CallLine(
        runtime=runtime,
        call=call,
        known=known,
        way=way,
        median_us=median(over(lambda mine, _: mine.median_us)),
        p99_us=median(over(lambda mine, _: mine.p99_us)),
        added_us=None if way == DIRECT else median(added),
        added_p99_us=None if way == DIRECT else median(added_p99),
        cpu_us=median(cpu),
        added=check(added, added_bar),
        added_p99=check(added_p99, p99_bar),
        cpu=check(cpu, cpu_bar),
    )


def _bars(call: str, known: int, way: str) -> tuple[Bar | None, Bar | None, Bar | None]:
    """What the median, the p99 and the CPU of a row may be. The annotating proxy counts for the held call only."""
    if way != CRIPROXY and (way, call) != (ANNOTATE, CREATE):
        return None, None, None
    p99 = bars.ADDED_P99_US if call == UNDER_CREATES else None
    return bars.ADDED_US.get((call, known)), p99, bars.CPU_US.get((call, known))


def process_lines(findings: Findings) -> Iterator[ProcessLine]:
    """Start and memory."""
    name = findings.runtime
    if findings.starts:
        yield _start_line(findings)
        starts = [start for run in findings.starts for start in run]
        ready_s, cpu_s = median(start.ready_s for start in starts), median(start.cpu_s for start in starts)
        yield ProcessLine(name, f"exec to READY, {LOADED_AT} known", CRIPROXY, "s", ready_s)
        yield ProcessLine(name, f"CPU until then, {LOADED_AT} known", CRIPROXY, "s", cpu_s)
    least = min(findings.memory, default=0)
    for known, of in findings.memory.items():
        for way, memory in of.items():
            if way != DIRECT:
                yield from _memory_lines(name, way, known, memory, of_least=findings.memory[least][way])


def _start_line(findings: Findings) -> ProcessLine:
    medians_s = [median(start.answer_s for start in run) for run in findings.starts]
    speeds = [run.speed for run in findings.rows.get((VERSION, LOADED_AT), [])] or [UNSCALED] * len(medians_s)
    checks = [Check(value, speed.limit(bars.START_S)) for value, speed in zip(medians_s, speeds, strict=True)]
    what = f"exec to first Version, {LOADED_AT} known"
    return ProcessLine(findings.runtime, what, CRIPROXY, "s", median(medians_s), worst(checks))


def _memory_lines(name: str, way: str, known: int, memory: Memory, of_least: Memory) -> Iterator[ProcessLine]:
    barred = way == CRIPROXY and known >= 1000

    def line(what: str, value: float, bar: Bar | None = None) -> ProcessLine:
        check = Check(value, UNSCALED.limit(bar)) if bar and barred else None
        return ProcessLine(name, f"{what}, {known} known", way, "MiB", value, check)

    yield line("RSS", memory.rss_bytes, bars.MEMORY_BYTES)
    yield line("PSS", memory.pss_bytes)
    yield line("USS", memory.uss_bytes)
    if memory is not of_least:
        yield line("RSS above none", memory.rss_bytes - of_least.rss_bytes, bars.MEMORY_GROWTH_BYTES)


def missed(findings: Findings) -> list[CallLine | ProcessLine]:
    """The lines with a figure over its bar."""
    lines: list[CallLine | ProcessLine] = [*call_lines(findings), *process_lines(findings)]
    return [line for line in lines if not all(check.ok for check in line.checks)]
