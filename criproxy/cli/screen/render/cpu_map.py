"""All CPUs of the machine: a gauge for each where there is room, else a character for each. Pure.

On the map, a CPU is a bar as high as its load, in the colour of its owner. Where there is room, the mark of the owner
stands below it, so that one can do without colours.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from criproxy.api.views.top.machine import FORBIDDEN, KEPT, MARKS, OFFLINE, RESERVED, SHARED, UNKNOWN, Block
from criproxy.api.views.top.scene import Scene
from criproxy.cli.screen.render.lines import (
    HEADING,
    NOTE,
    QUIET,
    TROUBLE,
    Line,
    Piece,
    fit,
    gauge,
    level,
    line,
    middle,
    percent,
    right,
)

COLOURS = ("green", "cyan", "magenta", "yellow", "bright_green", "bright_cyan", "bright_magenta", "bright_yellow")
"""Of containers with exclusive CPUs, by their marks."""
STYLES = {SHARED: "blue", RESERVED: "bright_black", KEPT: "white", FORBIDDEN: QUIET, OFFLINE: TROUBLE, UNKNOWN: QUIET}
LEGEND = ((SHARED, "shared"), (RESERVED, "reserved"), (KEPT, "kept for a pod"), (FORBIDDEN, "not for pods"))
GAUGE = 18
"""Columns of a small gauge, with a gap."""
WIDE_GAUGE = 39
"""Columns of a gauge with the name of the owner."""
_GAP = 2
_LABEL = 8
"""Columns at the left of small gauges."""


def style_of(mark: str) -> str:
    """The colour of a mark."""
    if mark in STYLES:
        return STYLES[mark]
    return COLOURS[MARKS.index(mark) % len(COLOURS)] if mark in MARKS else COLOURS[0]


def mark_of(scene: Scene, cpu: int) -> str:
    """The mark of the owner of *cpu*."""
    if scene.told is None:
        return UNKNOWN
    return scene.owners.mark_of.get(cpu, FORBIDDEN)


def legend(scene: Scene) -> Line:
    """What the marks mean, as far as they occur."""
    marks = {mark_of(scene, cpu) for block in scene.blocks for cpu in block.cpus}
    letters = sorted(marks & set(MARKS))
    pieces: list[Piece] = []
    if letters:
        span = letters[0] if len(letters) == 1 else "a, b …"
        pieces += [(span, style_of(letters[0])), (" exclusive   ", QUIET)]
    for mark, meaning in LEGEND:
        if mark in marks:
            pieces += [(mark, style_of(mark)), (f" {meaning}   ", QUIET)]
    return tuple(pieces)


def overview(scene: Scene, width: int, room: int, most: int) -> list[Line]:
    """All CPUs as large as possible in *room* lines; where they cannot be so small, in *most* lines."""
    count = sum(len(block.cpus) for block in scene.blocks)
    columns = max(1, (width - _LABEL) // GAUGE)
    if sum(-(-len(block.cpus) // columns) for block in scene.blocks) <= min(room, 8) and count <= 32:
        return small_gauges(scene, columns)
    lines: list[Line] = []
    for with_marks, with_gaps in ((True, True), (True, False), (False, True), (False, False)):
        lines = _map(scene, width, with_marks=with_marks, with_gaps=with_gaps)
        if len(lines) <= room:
            return lines
    if len(lines) <= most:
        return lines
    missing = len(lines) - most + 1
    return [*lines[: most - 1], line((f"… {missing} more lines; press 2 to show all CPUs", NOTE))] if most > 0 else []


def small_gauges(scene: Scene, columns: int) -> list[Line]:
    """A small gauge for each CPU, the NUMA node at the left."""
    lines: list[Line] = []
    for block in scene.blocks:
        rows = [block.cpus[at : at + columns] for at in range(0, len(block.cpus), columns)]
        for number, row in enumerate(rows):
            label = fit(f"node {block.node}" if number == 0 and block.node >= 0 else "", _LABEL)
            lines.append(((label, QUIET), *(piece for cpu in row for piece in _gauge(scene, cpu, 6))))
    return lines


def gauges(scene: Scene, width: int) -> list[Line]:
    """A gauge with the owner's name for each CPU, in columns from top to bottom, NUMA node by NUMA node."""
    columns = max(1, (width + 1) // WIDE_GAUGE)
    lines: list[Line] = []
    for block in scene.blocks:
        if len(scene.blocks) > 1:
            lines.append(line((_name(block, scene.blocks), HEADING)))
        height = -(-len(block.cpus) // columns)
        rows = (block.cpus[at::height] for at in range(height))
        lines += [tuple(piece for cpu in row for piece in _named_gauge(scene, cpu)) for row in rows]
    return lines


def _gauge(scene: Scene, cpu: int, bar: int) -> Iterator[Piece]:
    """Such as `` 12 ████▌    45% a``, with *bar* columns for the bar."""
    mark, load = mark_of(scene, cpu), scene.rates.load.get(cpu)
    yield right(str(cpu), 4), QUIET
    yield " ", ""
    yield gauge(load, bar), style_of(mark)
    yield right(percent(load), 5), ""
    yield f" {mark}", style_of(mark)


def _named_gauge(scene: Scene, cpu: int) -> Iterator[Piece]:
    """The same with the name of the owner, or what else the CPU is."""
    pieces = list(_gauge(scene, cpu, 8))
    owner = scene.owners.owner_of.get(cpu)
    text = owner.title if owner else dict(LEGEND).get(mark_of(scene, cpu), "")
    yield from pieces
    yield " ", ""
    yield middle(text, WIDE_GAUGE - sum(len(shown) for shown, _ in pieces) - 2), "" if owner else QUIET
    yield " ", ""


def _name(block: Block, blocks: Sequence[Block]) -> str:
    """Which part of the machine it is."""
    packages = {each.package for each in blocks}
    socket = f"socket {block.package} " if len(packages) > 1 and block.package >= 0 else ""
    return f"{socket}node {block.node}" if block.node >= 0 else f"{socket}no node"


def _map(scene: Scene, width: int, *, with_marks: bool, with_gaps: bool) -> list[Line]:
    """A character for each CPU: the NUMA nodes of a socket side by side, as many as fit."""
    sockets = [list(group) for _, group in groupby(scene.blocks, key=lambda block: block.package)]
    longest = max((len(_cells(block, with_gaps=with_gaps)) for block in scene.blocks), default=0)
    labels = _labels(scene.blocks, is_short=width < longest + 20)
    label = max(map(len, labels.values()), default=0) + 1
    socket = (3 if width < longest + 20 else 9) if len(sockets) > 1 else 0
    cells = max(8, min(longest, width - label - socket))
    columns = max(1, (width - socket + _GAP) // (label + cells + _GAP))
    lines: list[Line] = []
    for blocks in sockets:
        name = (f"S{blocks[0].package}" if socket == 3 else f"socket {blocks[0].package}") if socket else ""
        for at in range(0, len(blocks), columns):
            row = [(labels[block], _cells(block, with_gaps=with_gaps)) for block in blocks[at : at + columns]]
            lines += _row(scene, name if at == 0 else "", socket, row, label, cells, with_marks=with_marks)
    return lines


def _labels(blocks: Sequence[Block], *, is_short: bool) -> dict[Block, str]:
    word = "N" if is_short else "node "
    return {block: f"{word}{block.node}" if block.node >= 0 else ("-" if is_short else "no node") for block in blocks}


Cells = list[int | None]
"""CPUs in order, and None for a gap between caches."""


def _cells(block: Block, *, with_gaps: bool) -> Cells:
    cells: Cells = []
    for group in block.groups:
        if cells and with_gaps:
            cells.append(None)
        cells += group
    return cells


def _row(
    scene: Scene, name: str, socket: int, row: Sequence[tuple[str, Cells]], label: int, size: int, *, with_marks: bool
) -> Iterator[Line]:
    """The lines of NUMA nodes that stand side by side; a long one takes several."""
    height = max(-(-len(cells) // size) for _, cells in row)
    kinds: list[Callable[[Scene, int], str]] = [_level]
    if with_marks:
        kinds.append(mark_of)
    for part in range(height):
        for number, shown in enumerate(kinds):
            is_first = part == 0 and number == 0
            pieces: list[Piece] = [(fit(name if is_first else "", socket), QUIET)] if socket else []
            for title, cells in row:
                pieces.append((fit(title if is_first else "", label), QUIET))
                pieces += _shown(scene, cells[part * size : (part + 1) * size], size, shown)
                pieces.append((" " * _GAP, ""))
            yield tuple(pieces)


def _level(scene: Scene, cpu: int) -> str:
    shown = level(scene.rates.load.get(cpu))
    return "▁" if shown == " " else shown  # a CPU that does nothing is there, too


def _shown(scene: Scene, cells: Cells, size: int, shown: Callable[[Scene, int], str]) -> Iterator[Piece]:
    """The cells, those of one style together."""
    made = [(" ", "") if cpu is None else (shown(scene, cpu), style_of(mark_of(scene, cpu))) for cpu in cells]
    for style, group in groupby(made, key=lambda each: each[1]):
        yield "".join(text for text, _ in group), style
    yield " " * (size - len(cells)), ""
