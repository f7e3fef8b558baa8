"""A picture of the machine: nested boxes down to threads, in one self-contained SVG file."""

from collections.abc import Iterable

from criproxy.cli.render import topology_words as words
from criproxy.cli.render.svg import PAD_PX, Shape, Style, box, cell, document, flow, grid, stack, text, wrap
from criproxy.cli.render.topology_words import Extras
from criproxy.model.cpuset import numbered
from criproxy.model.machine.hardware import Hardware, PciDevice
from criproxy.model.machine.topology import Box, Core, Level, NumaNode, nest

THREAD_PX = (30, 20)
CORE_PAD_PX = 3
LEGEND_PX = 480
DEVICES_PX = 520
MANY = 256
"""The maximum number of offline CPUs that are drawn individually; more are shown as a list."""

LEVEL_COLOURS = {
    Level.PACKAGE: ("#f3f4f6", "#6b7280"),
    Level.DIE: ("#e5e7eb", "#6b7280"),
    Level.NODE: ("#e7f6ec", "#2f9e58"),
    Level.L3: ("#fff7e0", "#d9a406"),
    Level.L2: ("#fdeee4", "#dd7f3b"),
}
"""The fill and border color of each level."""

KIND_COLOURS = ("#eaf2fd", "#cfe2fb", "#a9cbf5", "#7fb0ee", "#5a98e6", "#3f80d4")
"""The fill colors of CPUs, from slow to fast."""
ALIKE_COLOUR = KIND_COLOURS[1]

MARK_CSS = {"isolated": "isolated", "forbidden to pods": "forbidden", "offline": "offline"}

CSS = " ".join(
    [
        "text{fill:#1f2937} .cell{text-anchor:middle;font-size:11px} .h1{font-size:17px;font-weight:600}",
        ".b{font-weight:600} .dim{fill:#6b7280}",
        ".core{fill:#ffffff;stroke:#9ca3af} .plain{fill:#ffffff;stroke:#d1d5db}",
        ".memory{fill:#f3e8fd;stroke:#8b5cf6} .pci{fill:#e4f5f7;stroke:#0e8a9c}",
        *(f".{level}{{fill:{fill};stroke:{stroke}}}" for level, (fill, stroke) in LEVEL_COLOURS.items()),
        *(f".kind{number}{{fill:{fill}}}" for number, fill in enumerate(KIND_COLOURS)),
        f".alike{{fill:{ALIKE_COLOUR}}}",
        ".isolated{stroke:#d97706;stroke-width:3}",
        ".forbidden{fill:url(#hatch);stroke:#b91c1c}",
        ".offline{fill:#ffffff;stroke:#6b7280;stroke-dasharray:3 2}",
    ]
)
HATCH = (
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#f3f4f6"/><path d="M0 0V6" stroke="#e0a3a3" stroke-width="3"/></pattern>'
)


def draw(hardware: Hardware) -> str:
    """Return the SVG document."""
    return _Picture(hardware).document()


class _Picture:
    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._topology = hardware.topology
        self._root = nest(hardware.topology)
        self._extras = Extras(self._root, hardware)
        self._kind_of = {cpu: number for number, kind in enumerate(self._topology.cpu_kinds) for cpu in kind.cpus}

    def document(self) -> str:
        title = words.title(self._topology)
        usable = f"Pods may use {numbered('CPU', self._topology.cpus)}"
        mems = f"memory of {numbered('NUMA node', self._topology.mems)}" if self._topology.mems else ""
        body = self._body(self._root)
        shapes = [
            text(title, "h1", font_px=17, bold=True),
            text(", ".join(part for part in (usable, mems) if part)),
            self._legend(max(body.width, LEGEND_PX)),
            *self._extra_shapes(self._root),
            body,
            *self._offline(),
            *self._distances(),
        ]
        return document(stack(shapes, gap=12), CSS, HATCH, title)

    def _body(self, outer: Box) -> Shape:
        inner = frozenset().union(*(each.cpus for each in outer.inside))
        alone = [core for core in self._topology.cores if core.cpus & (outer.cpus - inner)]
        shapes = [self._box(each) for each in outer.inside]
        if alone:
            shapes.append(flow([self._core(core) for core in alone], gap=4))
        return flow(shapes)

    def _box(self, outer: Box) -> Shape:
        style = Style(str(outer.level), tooltip=f"{words.name(outer)}: {numbered('CPU', outer.cpus)}")
        lines = [_head(words.name(outer))]
        if outer.level is Level.NODE:
            lines += self._node_lines(self._topology.node_by_id[outer.id])
        shapes = [self._body(outer), *self._extra_shapes(outer)]
        return box(style, lines, stack(shapes))

    def _node_lines(self, node: NumaNode) -> Iterable[Shape]:
        yield text(words.memory(node))
        for pages in self._hardware.hugepages:
            if pages.node == node.id and pages.total:
                yield text(words.pages(pages), "dim")

    def _core(self, core: Core) -> Shape:
        threads = [self._thread(cpu) for cpu in sorted(core.cpus)]
        columns = 1 if len(threads) == 1 else 2 if len(threads) <= 4 else 4
        return box(Style("core", pad=CORE_PAD_PX, radius=3), [], grid(threads, columns, gap=2))

    def _thread(self, cpu: int) -> Shape:
        marked = [word for word, cpus in words.marks(self._topology).items() if cpu in cpus]
        kind = self._kind_of.get(cpu)
        colour = "alike" if kind is None else f"kind{_shade(kind, len(self._topology.cpu_kinds))}"
        css = " ".join([colour, *(MARK_CSS[word] for word in marked)])
        tooltip = ", ".join([f"CPU {cpu}", *marked])
        return cell(str(cpu), Style(css, radius=2, tooltip=tooltip), *THREAD_PX)

    def _extra_shapes(self, outer: Box) -> list[Shape]:
        shapes = [self._memory_node(node) for node in self._extras.nodes(outer)]
        devices = self._extras.devices(outer)
        if major := words.major(devices):
            shapes.append(wrap([_device(device) for device in major], DEVICES_PX))
        shapes += [text(words.minor(devices), "dim")] if words.minor(devices) else []
        return shapes

    def _memory_node(self, node: NumaNode) -> Shape:
        lines = [_head(f"NUMA node {node.id}: memory only"), text(words.memory(node))]
        lines += [text(near, "dim")] if (near := words.near(self._topology, node)) else []
        return box(Style("memory"), lines)

    def _offline(self) -> list[Shape]:
        cpus = self._topology.offline_cpus
        if not cpus:
            return []
        cells = [self._thread(cpu) for cpu in sorted(cpus)] if len(cpus) <= MANY else []
        lines = [_head("offline"), text(numbered("CPU", cpus))]
        return [box(Style("plain"), lines, flow(cells, gap=4, ratio=12) if cells else None)]

    def _distances(self) -> list[Shape]:
        topology = self._topology
        if len(topology.distances) < 2:
            return []
        header = [text(""), *(_head(str(node.id)) for node in topology.nodes)]
        rows = [
            shape
            for node, row in zip(topology.nodes, topology.distances, strict=True)
            for shape in (_head(str(node.id)), *(text(str(distance)) for distance in row))
        ]
        return [
            box(Style("plain"), [_head("distance between NUMA nodes")], grid([*header, *rows], len(header), row_gap=0))
        ]

    def _legend(self, width: float) -> Shape:
        topology = self._topology
        kinds = topology.cpu_kinds
        entries = [
            _entry(f"kind{_shade(number, len(kinds))}", f"CPU, {words.kind(kind)}") for number, kind in enumerate(kinds)
        ]
        entries = entries or [_entry("alike", "CPU")]
        marks = words.marks(topology).items()
        entries += [_entry(f"alike {MARK_CSS[word]}", f"{word} ({len(cpus)})") for word, cpus in marks]
        entries += [_entry("core", "core")]
        levels = {each.level for each in _walk(self._root)}
        entries += [_entry(str(level), words.LEVEL_NAMES[level]) for level in words.LEVEL_NAMES if level in levels]
        if any(node.memory_only for node in topology.nodes):
            entries.append(_entry("memory", "memory-only NUMA node"))
        if words.major(self._hardware.pci):
            entries.append(_entry("pci", "PCI device"))
        return box(Style("plain"), [], wrap(entries, width - 2 * PAD_PX, gap=14))


def _walk(outer: Box) -> Iterable[Box]:
    for inner in outer.inside:
        yield inner
        yield from _walk(inner)


def _shade(kind: int, kinds: int) -> int:
    """Return the index of the color for *kind*, with *kinds* spread over all colors."""
    return round(kind * (len(KIND_COLOURS) - 2) / max(kinds - 1, 1))


def _head(content: str) -> Shape:
    return text(content, "b", bold=True)


def _entry(css: str, label: str) -> Shape:
    swatch = Shape(18, 14, (f'<rect class="{css}" width="18" height="14" rx="2"/>',))
    line = text(label)
    return Shape(line.width + 24, line.height, inner=((0, 1, swatch), (24, 0, line)))


def _device(device: PciDevice) -> Shape:
    return box(Style("pci", pad=4, tooltip=f"{numbered('local CPU', device.local_cpus)}"), [text(words.pci(device))])
