"""SVG pictures of a node over time: charts of scores, and heat maps of CPUs. Colors are classes of `STYLE`."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from math import ceil, floor, log10

from criproxy.model.machine.topology import Topology
from criproxy.simulate.load_run import Outcome, Sample

LINES = 6
"""The number of different lines; dashes distinguish them without colors, and where they overlap."""
LEGEND = (
    ("nothing requested", "l0"),
    ("up to 25 %", "l1"),
    ("up to 50 %", "l2"),
    ("up to 75 %", "l3"),
    ("up to 100 %", "l4"),
    ("more than it provides", "over"),
    ("exclusive to one container", "owned"),
)
"""The meanings of the classes in a `heatmap`."""
STYLE = """
:root { --ink: #1b1f24; --dim: #59636e; --line: #d0d7de; --paper: #ffffff; --good: #dff5e3; --box: #f6f8fa;
  --c0: #0072b2; --c1: #c2410c; --c2: #007a5a; --c3: #9b4f96; --c4: #8a6d00; --c5: #57606a;
  --l0: #eef1f4; --l1: #cfe3f7; --l2: #93c0ea; --l3: #4c92d3; --l4: #1f5fa6; --over: #b3123c; --owned: #f0b429 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --dim: #a3adb8; --line: #3d444d; --paper: #12161c; --good: #17402a; --box: #1b2129;
    --c0: #58b1f0; --c1: #f0883e; --c2: #3fb68b; --c3: #d59bd8; --c4: #d9b53d; --c5: #9ea7b1;
    --l0: #232a33; --l1: #1d3a57; --l2: #2a5d8f; --l3: #4a90d0; --l4: #9ccbf5; --over: #ff5d73; --owned: #d9990f }
}
svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .grid { stroke: var(--line) }
svg .c { fill: none; stroke-width: 2 }
.c0 { stroke: var(--c0) } .c1 { stroke: var(--c1); stroke-dasharray: 6 3 }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3 }
.c3 { stroke: var(--c3); stroke-dasharray: 8 3 2 3 } .c4 { stroke: var(--c4); stroke-dasharray: 12 4 }
.c5 { stroke: var(--c5); stroke-dasharray: 1 4 }
.l0 { fill: var(--l0) } .l1 { fill: var(--l1) } .l2 { fill: var(--l2) } .l3 { fill: var(--l3) } .l4 { fill: var(--l4) }
.over { fill: var(--over) } .owned { fill: var(--owned) }
"""
"""The style sheet of a page with such pictures, with a light and a dark theme."""
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900, 90, 14, 10, 38
CHART_HEIGHT = 150
MOST_ROWS = 96
NODE_GAP = 3
_LEVELS = 4


def chart(description: str, lines: Sequence[Sequence[float]], duration_s: float) -> str:
    """Return a chart with one line for each policy; *description* is for screen readers."""
    values = [value for line in lines for value in line]
    ticks = _ticks(min(values, default=0), max(values, default=1))
    low, high = ticks[0], ticks[-1]
    bottom = TOP + CHART_HEIGHT
    parts = []
    for tick in ticks:
        y = bottom - CHART_HEIGHT * (tick - low) / (high - low)
        parts += [f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>']
        parts += [_text(LEFT - 8, y + 4, f"{tick:g}", anchor="end")]
    for place, line in enumerate(lines):
        step = (WIDTH - LEFT - RIGHT) / max(len(line) - 1, 1)
        points = (
            f"{LEFT + step * index:.1f},{bottom - CHART_HEIGHT * (value - low) / (high - low):.1f}"
            for index, value in enumerate(line)
        )
        parts.append(f'<polyline class="c c{place % LINES}" points="{" ".join(points)}"/>')
    return _svg(description, bottom + BOTTOM, [*parts, *_time(duration_s, bottom)])


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round numbers that include all values."""
    rough = max(high - low, 1e-6) / 3
    unit = 10 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first = floor(low / step + 1e-9)
    last = max(ceil(high / step - 1e-9), first + 1)
    return [round(step * number, 9) for number in range(first, last + 1)]


def heatmap(description: str, topology: Topology, outcome: Outcome) -> str:
    """Return a heat map of the CPU time requested of each CPU; on large machines, of several CPUs together."""
    rows = list(_rows(topology))
    height = max(3, min(14, 288 // max(len(rows), 1)))
    width = (WIDTH - LEFT - RIGHT) / max(len(outcome.samples), 1)
    asked = [dict(sample.asked) for sample in outcome.samples]
    paths: dict[str, list[str]] = {}
    labels: list[str] = []
    y, last = TOP, None
    for number, cpus in rows:
        if number != last:
            y += NODE_GAP if last is not None else 0
            labels.append(_text(LEFT - 8, y + 11, f"NUMA node {number}", anchor="end"))
            last = number
        shades = [_shade(cpus, sample, each) for sample, each in zip(outcome.samples, asked, strict=True)]
        for shade, start, length in _stretches(shades):
            bar = f"M{LEFT + start * width:.1f} {y}h{length * width:.1f}v{height}h{-length * width:.1f}z"
            paths.setdefault(shade, []).append(bar)
        y += height
    bars = [f'<path class="{shade}" d="{"".join(found)}"/>' for shade, found in sorted(paths.items())]
    duration_s = outcome.samples[-1].at_s if outcome.samples else 0.0
    return _svg(description, y + BOTTOM, [*labels, *bars, *_time(duration_s, y)])


def _rows(topology: Topology) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the NUMA node and the CPUs of each row, with threads of a core next to each other."""
    total = len(topology.cpus)
    together = max(1, ceil(total / MOST_ROWS))
    for node in topology.nodes:
        cpus = sorted(node.cpus & topology.cpus, key=lambda cpu: (topology.core_of[cpu].id, cpu))
        for start in range(0, len(cpus), together):
            yield node.id, tuple(cpus[start : start + together])


def _shade(cpus: Sequence[int], sample: Sample, asked: dict[int, float]) -> str:
    """Return the class of several CPUs at one moment."""
    owned = sum(1 for cpu in cpus if cpu in sample.owned)
    if 2 * owned > len(cpus):
        return "owned"
    busy = sum(asked.get(cpu, 0.0) for cpu in cpus) / len(cpus) / 1000
    if busy > 1.005:  # sums of shares are not exact
        return "over"
    return f"l{min(ceil(busy * _LEVELS - 0.005), _LEVELS)}"


def _stretches(shades: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield each run of the same shade, with its start and length."""
    start = 0
    for shade, run in groupby(shades):
        length = len(list(run))
        yield shade, start, length
        start += length


def _time(duration_s: float, y: float) -> Iterator[str]:
    for part in range(5):
        x = LEFT + (WIDTH - LEFT - RIGHT) * part / 4
        anchor = "end" if part == 4 else "start" if part == 0 else "middle"
        yield _text(x, y + 16, clock(duration_s * part / 4), anchor=anchor)
    yield _text((LEFT + WIDTH - RIGHT) / 2, y + 33, "time since the beginning", anchor="middle")


def clock(seconds: float) -> str:
    """Format a time since the start, such as 1:30 h or 40 s."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02} h"


def _text(x: float, y: float, content: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _svg(description: str, height: float, parts: Sequence[str]) -> str:
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>'
    return "\n".join([head, f"<title>{escape(description)}</title>", *parts, "</svg>"])
