"""SVG pictures of a node over time: lines of scores, and how busy each CPU is."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from math import ceil, floor

from criproxy.model.topology import Topology
from criproxy.sim.load_run import Outcome, Sample

COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#8250df", "#bc4c00", "#57606a")
"""Of policies, in their order."""
DASHES = ("", "6 3", "2 3", "8 3 2 3", "12 4", "1 4")
"""So that lines are told apart where one is over another, and without colours."""
LEVELS = ("#eef1f4", "#cfe3f7", "#93c0ea", "#4c92d3", "#1f5fa6")
OVER, OWNED = "#d1242f", "#2da44e"
LEGEND = (
    ("nothing asked", LEVELS[0]),
    ("up to a half", LEVELS[2]),
    ("up to all", LEVELS[4]),
    ("more than it has", OVER),
    ("owned by one container", OWNED),
)
"""What the colours of a `heatmap` mean."""
WIDTH, LEFT, TOP, BOTTOM = 900, 90, 24, 22
CHART_HEIGHT = 150
MOST_ROWS = 96
NODE_GAP = 3


def chart(title: str, lines: Sequence[Sequence[float]], duration_s: float) -> str:
    """Lines over the same time, one for each policy."""
    values = [value for line in lines for value in line]
    low, high = floor(min(values, default=0)), ceil(max(values, default=1))
    high = max(high, low + 1)
    bottom = TOP + CHART_HEIGHT
    parts = [_text(0, 14, title), *_axis(low, high)]
    for place, line in enumerate(lines):
        step = (WIDTH - LEFT) / max(len(line) - 1, 1)
        points = (
            f"{LEFT + step * index:.1f},{bottom - CHART_HEIGHT * (value - low) / (high - low):.1f}"
            for index, value in enumerate(line)
        )
        dash = DASHES[place % len(DASHES)]
        style = f'fill="none" stroke="{COLOURS[place % len(COLOURS)]}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline {style} points="{" ".join(points)}"/>')
    return _svg(title, bottom + BOTTOM, [*parts, *_time(duration_s, bottom)])


def _axis(low: int, high: int) -> Iterator[str]:
    for value in (low, (low + high) / 2, high):
        y = TOP + CHART_HEIGHT * (high - value) / (high - low)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH}" stroke="#d8dee4"/>'
        yield _text(LEFT - 8, y + 4, f"{value:g}", anchor="end")


def heatmap(topology: Topology, outcome: Outcome) -> str:
    """How much is asked of each CPU over time; of large machines, of a few CPUs together."""
    rows = list(_rows(topology))
    height = max(3, min(14, 288 // max(len(rows), 1)))
    width = (WIDTH - LEFT) / max(len(outcome.samples), 1)
    asked = [dict(sample.asked) for sample in outcome.samples]
    paths: dict[str, list[str]] = {}
    labels: list[str] = []
    y, last = 4, None
    for number, cpus in rows:
        if number != last:
            y += NODE_GAP if last is not None else 0
            labels.append(_text(LEFT - 8, y + 11, f"NUMA node {number}", anchor="end"))
            last = number
        colours = [_colour(cpus, sample, each) for sample, each in zip(outcome.samples, asked, strict=True)]
        for colour, start, length in _stretches(colours):
            bar = f"M{LEFT + start * width:.1f} {y}h{length * width:.1f}v{height}h{-length * width:.1f}z"
            paths.setdefault(colour, []).append(bar)
        y += height
    bars = [f'<path fill="{colour}" d="{"".join(found)}"/>' for colour, found in sorted(paths.items())]
    duration_s = outcome.samples[-1].at_s if outcome.samples else 0.0
    return _svg(f"CPUs by {outcome.name}", y + BOTTOM, [*labels, *bars, *_time(duration_s, y)])


def _rows(topology: Topology) -> Iterator[tuple[int, tuple[int, ...]]]:
    """NUMA node and CPUs of each row, threads of a core next to each other."""
    total = len(topology.cpus)
    together = max(1, ceil(total / MOST_ROWS))
    for node in topology.nodes:
        cpus = sorted(node.cpus & topology.cpus, key=lambda cpu: (topology.core_of[cpu].id, cpu))
        for start in range(0, len(cpus), together):
            yield node.id, tuple(cpus[start : start + together])


def _colour(cpus: Sequence[int], sample: Sample, asked: dict[int, float]) -> str:
    owned = sum(1 for cpu in cpus if cpu in sample.owned)
    if 2 * owned > len(cpus):
        return OWNED
    busy = sum(asked.get(cpu, 0.0) for cpu in cpus) / len(cpus) / 1000
    if busy > 1.005:  # sums of shares are not exact
        return OVER
    return LEVELS[min(ceil(busy * (len(LEVELS) - 1) - 0.005), len(LEVELS) - 1)]


def _stretches(colours: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Each run of the same colour: where it begins, and how long it is."""
    start = 0
    for colour, run in groupby(colours):
        length = len(list(run))
        yield colour, start, length
        start += length


def _time(duration_s: float, y: float) -> Iterator[str]:
    for part in range(5):
        x = LEFT + (WIDTH - LEFT) * part / 4
        anchor = "end" if part == 4 else "start" if part == 0 else "middle"
        yield _text(x, y + 16, clock(duration_s * part / 4), anchor=anchor)


def clock(seconds: float) -> str:
    """A time since the beginning, such as 1:30 h or 40 s."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02} h"


def _text(x: float, y: float, content: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"])
