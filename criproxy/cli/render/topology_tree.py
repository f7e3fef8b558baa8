"""A tree of the machine on a terminal."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from criproxy.cli.render import topology_words as words
from criproxy.cli.render.console import UNLIMITED
from criproxy.cli.render.topology_words import Extras
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.machine.hardware import Hardware
from criproxy.model.machine.topology import Box, Level, Topology, nest

STYLES = {Level.PACKAGE: "bold", Level.DIE: "bold", Level.NODE: "green", Level.L3: "cyan", Level.L2: "blue"}
MARK_STYLES = {"isolated": "yellow", "forbidden to pods": "red", "offline": "dim"}


def show(hardware: Hardware) -> None:
    """Print *hardware* to standard output, with colors if it is a terminal."""
    # In a pipe or file, lines may have any length.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else UNLIMITED)
    topology = hardware.topology
    root = nest(topology)
    extras = Extras(root, hardware)
    tree = Tree(f"[bold]{escape(words.title(topology))}[/]")
    _add_extras(tree, root, hardware, extras)
    _grow(tree, root, hardware, extras)
    console.print(tree)
    for line in _summary(hardware):
        console.print(line)
    if len(topology.distances) > 1:
        console.print("\nDistance between NUMA nodes")
        console.print(_distances(topology))


def _grow(tree: Tree, box: Box, hardware: Hardware, extras: Extras) -> None:
    for inner in box.inside:
        chain = words.same(inner)
        branch = tree.add(_line(chain, hardware.topology))
        for each in chain:
            _add_extras(branch, each, hardware, extras)
        _grow(branch, chain[-1], hardware, extras)
    outside = box.cpus - frozenset().union(*(inner.cpus for inner in box.inside))
    if box.inside and outside:
        tree.add(f"others: {_cpus(outside, hardware.topology)}")


def _add_extras(tree: Tree, box: Box, hardware: Hardware, extras: Extras) -> None:
    """Add the memory-only nodes and devices of *box*."""
    for pages in hardware.hugepages:
        if box.level is Level.NODE and pages.node == box.id and pages.total:
            tree.add(words.pages(pages))
    for node in extras.nodes(box):
        near = words.near(hardware.topology, node)
        tree.add(f"[magenta]NUMA node {node.id}[/] {words.memory(node)}, no CPUs{near and f'; {near}'}")
    for device in words.major(extras.devices(box)):
        tree.add(f"[yellow]PCI[/] {escape(words.pci(device))}")
    if others := words.minor(extras.devices(box)):
        tree.add(f"[dim]{others}[/]")


def _line(chain: Sequence[Box], topology: Topology) -> str:
    """Return one line for boxes with the same CPUs."""
    names = []
    for box in chain:
        memory = f" {words.memory(topology.node_by_id[box.id])}" if box.level is Level.NODE else ""
        names.append(f"[{STYLES[box.level]}]{words.name(box)}[/]{memory}")
    return f"{', '.join(names)}: {_cpus(chain[0].cpus, topology)}"


def _cpus(cpus: CpuSet, topology: Topology) -> str:
    cores = sum(1 for core in topology.cores if core.cpus & cpus)
    many = f" ({words.count(cores, 'core')}, {words.count(len(cpus), 'CPU')})" if cores < len(cpus) else ""
    return f"{numbered('CPU', cpus)}{many}"


def _summary(hardware: Hardware) -> list[str]:
    topology, speeds = hardware.topology, hardware.frequencies
    memory = f", memory of {numbered('NUMA node', topology.mems)}" if topology.mems else ""
    lines = [f"Pods may use {numbered('CPU', topology.cpus)}{memory}"]
    for word, cpus in words.marks(topology).items():
        lines.append(f"[{MARK_STYLES[word]}]{word.capitalize()}[/]: {numbered('CPU', cpus)}")
    if hardware.nohz_full_cpus:
        lines.append(f"Tickless (nohz_full): {numbered('CPU', hardware.nohz_full_cpus)}")
    for number, kind in enumerate(topology.cpu_kinds):
        lines.append(f"Kind {number}: {numbered('CPU', kind.cpus)}, {words.kind(kind)}")
    if not topology.cpu_kinds:
        for base_khz, min_khz, max_khz in sorted({(each.base_khz, each.min_khz, each.max_khz) for each in speeds}):
            base = f", base {base_khz / 1e6:.1f}" if base_khz else ""
            lines.append(f"Frequency: {min_khz / 1e6:.1f} to {max_khz / 1e6:.1f} GHz{base}")
    return lines


def _distances(topology: Topology) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("node", style="green")
    for node in topology.nodes:
        table.add_column(str(node.id), justify="right", header_style="green")
    for node, row in zip(topology.nodes, topology.distances, strict=True):
        table.add_row(str(node.id), *(str(distance) for distance in row))
    return table
