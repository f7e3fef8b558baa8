"""A picture of placements: a row for each container, a column for each CPU, and a panel for each moment.

Each element is on a line of its own and has whole pixels, so that two pictures can be compared line by line.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from criproxy.cli.render.svg import Shape, document, stack, text
from criproxy.errors import UsageError
from criproxy.model.cpuset import numbered
from criproxy.model.machine.topology import Topology
from criproxy.simulate.scenario.runner import run, runs
from criproxy.simulate.scenario.seen import Moment, Placed
from criproxy.simulate.scenario.vectors import load
from lab.pictures.placement_columns import Columns, columns_of

ROW_PX, BAR_PX, MEMORY_PX = 20, 11, 3
LABEL_GAP_PX = 12
CSS = (
    "text{fill:#1f2937} .b{font-weight:600} .n{font-size:10px;fill:#57606a} .m{text-anchor:middle} "
    ".node{fill:#eef1f5} .shared{fill:#6ba3dd} .own{fill:#f0b429;stroke:#7a5200} .memory{fill:#2f7d5b}"
)
SEVERAL = {"starts": "start", "ends": "end", "is refused": "are refused"}
"""What happens to a pod, in the singular and in the plural."""
LEGEND = (
    ("own", "these CPUs are exclusive to it"),
    ("shared", "these CPUs are shared"),
    ("memory", "memory of these NUMA nodes"),
)


def draw_case(file: Path, case: str) -> str:
    """Return a picture of the *case* of a scenario file, run by the first of its rules: a panel for each moment."""
    (vector,) = load(file, [case])
    (_, rules), *_ = runs([vector])
    result = run(vector, rules)
    if result.topology is None:
        raise UsageError(f"{file}: {case} is about a function and has no machine")
    return draw(vector.title or vector.id, result.topology, result.moments) + "\n"


def draw(title: str, topology: Topology, moments: Sequence[Moment]) -> str:
    """Return the SVG document; *moments* are the panels, one below the other."""
    columns = columns_of(topology)
    labels = [text(label) for moment in moments for label in _labels(moment.placed).values()]
    left = round(max((label.width for label in labels), default=0)) + LABEL_GAP_PX
    before = [None, *(moment.placed for moment in moments)]
    panels = [
        _panel(moment, columns, left, same=moment.placed == was) for moment, was in zip(moments, before, strict=False)
    ]
    shapes = [text(title, "b", bold=True), _header(columns, left), *panels, _legend()]
    return document(stack(shapes, gap=12), CSS, "", " ".join([f"{title}.", words(topology, moments)]))


def words(topology: Topology, moments: Sequence[Moment]) -> str:
    """Describe the picture for screen readers, with a sentence for each moment."""
    return " ".join(f"{_heading(moment)}: {_description(moment.placed, topology)}." for moment in moments)


def _description(placed: Mapping[str, Placed], topology: Topology) -> str:
    labels = _labels(placed)
    return (
        "; ".join(f"{labels[name]} {_place(each, topology)}" for name, each in placed.items())
        or "no container is placed"
    )


def _place(placed: Placed, topology: Topology) -> str:
    own, shared = placed.exclusive, placed.cpus - placed.exclusive
    parts = [f"has {numbered('CPU', own)} exclusively"] * bool(own) + [f"shares {numbered('CPU', shared)}"] * bool(
        shared
    )
    some = numbered("NUMA node", placed.mems)
    memory = "all NUMA nodes" if placed.mems >= topology.mems else some
    return f"{' and '.join(parts)}, memory of {memory}"


def _labels(placed: Mapping[str, Placed]) -> dict[str, str]:
    """Return a label for each container: its pod, its name if there are others, and its pool if that has a name."""
    pods = [each.pod for each in placed.values()]
    found = {}
    for name, each in placed.items():
        alone = pods.count(each.pod) == 1
        label = each.pod if alone and each.pod else f"{each.pod} {name.removeprefix(each.pod)}".strip()
        found[name] = f"{label} in {each.pool}" if each.pool else label
    return found


def _heading(moment: Moment) -> str:
    """Return a heading such as ``dns, web start; night ends``."""
    groups: list[tuple[str, list[str]]] = []
    for each in moment.happened:
        pod, what = next(
            ((each.removesuffix(f" {one}"), one) for one in SEVERAL if each.endswith(f" {one}")), ("", each)
        )
        if not groups or groups[-1][0] != what:
            groups.append((what, []))
        groups[-1][1].append(pod)
    return "; ".join(
        f"{', '.join(pods)} {SEVERAL[what] if len(pods) > 1 else what}" if what in SEVERAL else what
        for what, pods in groups
    )


def _header(columns: Columns, left: int) -> Shape:
    """Draw the names of sockets, NUMA nodes and CPUs."""
    rows = [columns.sockets, columns.nodes, columns.cpus if columns.numbered else ()]
    parts = []
    for line, spans in enumerate(row for row in rows if row):
        css = "n m" if spans is columns.cpus else "m"
        y = 12 + 16 * line
        parts += [f'<text class="{css}" x="{left + s.x + s.width // 2}" y="{y}">{escape(s.name)}</text>' for s in spans]
    return Shape(left + columns.width, 16 * sum(1 for row in rows if row), tuple(parts))


def _panel(moment: Moment, columns: Columns, left: int, *, same: bool) -> Shape:
    """Draw what has happened, and a row for each container unless the placements are those of the previous panel."""
    labels = {} if same else _labels(moment.placed)
    heading = f"{_heading(moment)}: no container has moved" if same else _heading(moment)
    height = 20 + ROW_PX * len(labels)
    parts = [f'<text class="b" y="13">{escape(heading)}</text>']
    if labels:
        parts += [_rect("node", left + span.x, 20, span.width, height - 20) for span in columns.nodes]
    for row, (name, label) in enumerate(labels.items()):
        y = 20 + ROW_PX * row
        parts.append(f'<text y="{y + 13}">{escape(label)}</text>')
        parts += _bars(moment.placed[name], columns, left, y + 2)
    return Shape(max(left + columns.width, round(text(heading, bold=True).width)), height, tuple(parts))


def _bars(placed: Placed, columns: Columns, left: int, y: int) -> Iterator[str]:
    """Draw the CPUs of one container, with its memory below."""
    for css, cpus in (("shared", placed.cpus - placed.exclusive), ("own", placed.exclusive)):
        for span in columns.runs(cpus):
            yield _rect(css, left + span.x, y, span.width, BAR_PX)
    for span in columns.memory(placed.mems):
        yield _rect("memory", left + span.x, y + BAR_PX + 1, span.width, MEMORY_PX)


def _legend() -> Shape:
    parts, x = [], 0
    for css, meaning in LEGEND:
        high = MEMORY_PX if css == "memory" else BAR_PX
        parts.append(_rect(css, x, 12 - high, 24, high))
        parts.append(f'<text x="{x + 30}" y="12">{meaning}</text>')
        x += 50 + round(text(meaning).width)
    return Shape(x, 16, tuple(parts))


def _rect(css: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{css}" x="{x}" y="{y}" width="{width}" height="{height}"/>'
