"""``criproxy topology``: prints the machine as a tree, as JSON or as an SVG picture."""

import json
from pathlib import Path
from typing import Any

import click

from criproxy.cli.render.console import print_lines
from criproxy.cli.render.control_words import control_lines, controls_json
from criproxy.host.controllable import read_controllable
from criproxy.host.machine import inspect
from criproxy.model.machine.hardware import Hardware
from criproxy.model.machine.topology import Topology


@click.command(short_help="Show the CPUs, caches, NUMA nodes and devices of this machine.")
@click.option(
    "--host-root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default="/",
    show_default=True,
    help="Directory with the host's /sys, /proc and cgroup tree, or with a copy of another machine's.",
)
@click.option("--format", "output", type=click.Choice(["table", "json", "svg"]), default="table", show_default=True)
def command(host_root: Path, output: str) -> None:
    """Show what criproxy knows about the machine, and which of its CPUs and NUMA nodes are available to pods.

    The table is an overview, the JSON output contains every list of CPUs in full, and the SVG output is a picture of
    the node for a browser: criproxy topology --format svg > node.svg
    """
    hardware = inspect(host_root)
    if output == "json":
        controls = controls_json(read_controllable(host_root), hardware.topology)
        click.echo(json.dumps({**as_json(hardware), "controls": controls}))
    elif output == "svg":
        from criproxy.cli.render.topology_svg import draw

        click.echo(draw(hardware))
    else:
        from criproxy.cli.render.topology_tree import show, show_processor

        show(hardware)
        lines = control_lines(read_controllable(host_root), hardware.topology)
        print_lines("\nWhat classes can set:\n" + "\n".join(lines))
        if host_root == Path("/"):  # elsewhere, the processor is another machine's
            show_processor()


def as_json(hardware: Hardware) -> dict[str, Any]:
    """Return the machine as JSON values, with CPUs in ascending order; unknown values are null or empty."""
    topology = hardware.topology
    return {
        "online_cpus": sorted(topology.online_cpus),
        "offline_cpus": sorted(topology.offline_cpus),
        "present_cpus": sorted(hardware.present_cpus),
        "possible_cpus": hardware.possible_cpus or None,
        "isolated_cpus": sorted(topology.isolated_cpus),
        "nohz_full_cpus": sorted(hardware.nohz_full_cpus),
        "allowed_cpus": sorted(topology.cpus),
        "allowed_mems": sorted(topology.mems),
        "smt": topology.smt,
        **_groups(topology),
        **_numa(topology),
        "node_states": {name: sorted(nodes) for name, nodes in hardware.node_states.items()},
        **_lists(hardware),
    }


def _groups(topology: Topology) -> dict[str, Any]:
    return {
        "packages": [{"id": package.id, "cpus": sorted(package.cpus)} for package in topology.packages],
        "dies": [{"package": die.package, "id": die.id, "cpus": sorted(die.cpus)} for die in topology.dies],
        "l3_groups": [sorted(group) for group in topology.l3_groups],
        "l2_groups": [sorted(group) for group in topology.l2_groups],
        "cores": [sorted(core.cpus) for core in topology.cores],
        "cpu_kinds": [
            {
                "cpus": sorted(kind.cpus),
                "capacity": kind.capacity or None,
                "base_khz": kind.base_khz or None,
                "max_khz": kind.max_khz or None,
            }
            for kind in topology.cpu_kinds
        ],
    }


def _numa(topology: Topology) -> dict[str, Any]:
    return {
        "numa_nodes": [
            {
                "id": node.id,
                "cpus": sorted(node.cpus),
                "memory_bytes": node.memory_bytes or None,
                "memory_only": node.memory_only,
                "kind": str(node.kind),
                "normal_memory": node.normal_memory,
            }
            for node in topology.nodes
        ],
        "numa_distances": {
            "nodes": [node.id for node in topology.nodes],
            "matrix": [list(row) for row in topology.distances],
        }
        if topology.distances
        else None,
    }


def _lists(hardware: Hardware) -> dict[str, Any]:
    return {
        "frequencies": [
            {
                "cpus": sorted(each.cpus),
                "base_khz": each.base_khz or None,
                "min_khz": each.min_khz or None,
                "max_khz": each.max_khz or None,
            }
            for each in hardware.frequencies
        ],
        "hugepages": [
            {"node": each.node, "size_bytes": each.size_bytes, "total": each.total, "free": each.free}
            for each in hardware.hugepages
        ],
        "pci": [
            {
                "address": each.address,
                "class": each.class_id,
                "vendor": each.vendor,
                "device": each.device,
                "numa_node": each.numa_node,
                "local_cpus": sorted(each.local_cpus),
            }
            for each in hardware.pci
        ],
    }
