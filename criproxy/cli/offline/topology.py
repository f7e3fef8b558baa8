"""``criproxy topology``: prints the machine as a tree, as JSON or as an SVG picture."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from criproxy.cli.options import host_root_option
from criproxy.cli.render.console import print_lines
from criproxy.cli.render.topology_words import count
from criproxy.host.controllable import read_controllable
from criproxy.host.machine import inspect, read_processor
from criproxy.model.controls import BURST, DEFAULTS
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.hardware import Hardware
from criproxy.model.machine.topology import Topology


@click.command(short_help="Show the CPUs, caches, NUMA nodes and devices of this machine.")
@host_root_option(
    "Directory with the host's /sys, /proc and cgroup tree, or with a copy of another machine's.", exists=True
)
@click.option("--format", "output", type=click.Choice(["table", "json", "svg"]), default="table", show_default=True)
def command(host_root: Path, output: str) -> None:
    """Show what criproxy knows about the machine, and which of its CPUs and NUMA nodes are available to pods.

    The table is an overview, the JSON output contains every list of CPUs in full, and the SVG output is a picture of
    the node for a browser: criproxy topology --format svg > node.svg
    """
    hardware = inspect(host_root)
    if output == "json":
        controls = _controls_json(read_controllable(host_root), hardware.topology)
        click.echo(json.dumps({**as_json(hardware), "controls": controls}))
    elif output == "svg":
        from criproxy.cli.render.topology_svg import draw

        click.echo(draw(hardware))
    else:
        from criproxy.cli.render.topology_tree import show

        show(hardware)
        lines = _control_lines(read_controllable(host_root), hardware.topology)
        print_lines("\nWhat classes can set:\n" + "\n".join(lines))
        if host_root == Path("/"):  # elsewhere, the processor is another machine's
            processor, flags = read_processor()  # takes a second: after all else
            print_lines(f"\nProcessor: {processor}\nFlags: {flags}")


def as_json(hardware: Hardware) -> dict[str, Any]:
    """Return the machine as JSON values, with CPUs in ascending order; unknown values are null or empty."""
    topology = hardware.topology
    cpus = {
        "online_cpus": topology.online_cpus,
        "offline_cpus": topology.offline_cpus,
        "present_cpus": hardware.present_cpus,
        "possible_cpus": hardware.possible_cpus or None,
        "isolated_cpus": topology.isolated_cpus,
        "nohz_full_cpus": hardware.nohz_full_cpus,
        "allowed_cpus": topology.cpus,
        "allowed_mems": topology.mems,
        "smt": topology.smt,
    }
    numa = {"nodes": [node.id for node in topology.nodes], "matrix": [list(row) for row in topology.distances]}
    return {
        **{name: _value(value) for name, value in cpus.items()},
        "packages": _rows(topology.packages, "id cpus"),
        "dies": _rows(topology.dies, "package id cpus"),
        "l3_groups": [sorted(group) for group in topology.l3_groups],
        "l2_groups": [sorted(group) for group in topology.l2_groups],
        "cores": [sorted(core.cpus) for core in topology.cores],
        "cpu_kinds": _rows(topology.cpu_kinds, "cpus capacity base_khz max_khz"),
        "numa_nodes": _rows(topology.nodes, "id cpus memory_bytes memory_only kind normal_memory"),
        "numa_distances": numa if topology.distances else None,
        "node_states": {name: sorted(nodes) for name, nodes in hardware.node_states.items()},
        "frequencies": _rows(hardware.frequencies, "cpus base_khz min_khz max_khz"),
        "hugepages": _rows(hardware.hugepages, "node size_bytes total free"),
        "pci": _rows(hardware.pci, "address class_id vendor device numa_node local_cpus"),
    }


_NAMES = {"class_id": "class"}
"""Names in JSON, where they are not those of the attributes."""
_NULL_IF_ZERO = frozenset({"capacity", "base_khz", "min_khz", "max_khz", "memory_bytes"})
"""Attributes that are 0 if they are unknown."""


def _rows(listed: Iterable[object], names: str) -> list[dict[str, Any]]:
    """Return the attributes of each object that have these *names*."""
    return [{_NAMES.get(name, name): _attribute(each, name) for name in names.split()} for each in listed]


def _attribute(each: object, name: str) -> Any:  # noqa: ANN401 - JSON
    value = getattr(each, name)
    return None if name in _NULL_IF_ZERO and not value else _value(value)


def _value(value: Any) -> Any:  # noqa: ANN401 - JSON
    return sorted(value) if isinstance(value, frozenset) else value


NONE = "none"


def _controls_json(machine: Controllable, topology: Topology) -> dict[str, Any]:
    """Return the part ``controls`` of `topology`; frequencies in kHz, and what cgroups have, are null if unknown."""
    resctrl, known = machine.resctrl, topology.control_files
    files = known if known is None else sorted(known & DEFAULTS.keys())
    return {
        "cgroup_version": 2 if machine.unified else 1,
        "files": files if machine.unified else [BURST] * machine.v1_burst,
        "block_io_limits": None if known is None else machine.throttles,
        "block_io_weights": None if known is None else machine.weights,
        "governors": list(machine.governors),
        "energy_preferences": list(machine.energy_preferences),
        "min_khz": machine.min_khz or None,
        "max_khz": machine.max_khz or None,
        "idle_states": list(machine.c_states),
        "uncore": machine.uncore,
        "resctrl": resctrl
        and {"resources": [*sorted(resctrl.caches), *["MB"] * bool(resctrl.bandwidth)], "groups": resctrl.groups},
        "no_resctrl": machine.no_resctrl,
        "real_time": machine.scheduler.runtime_us != 0 and machine.scheduler.pods_runtime_us != 0,
    }


def _control_lines(machine: Controllable, topology: Topology) -> Iterator[str]:
    """Yield what classes can set, one line for each part of a class."""
    values = _controls_json(machine, topology)
    if values["files"] is None:
        yield "Files of cgroups: unknown, since no cgroup is mounted"
    else:
        limits, weights = ("limits" * values["block_io_limits"], "weights" * values["block_io_weights"])
        yield f"cgroup version {values['cgroup_version']}: {', '.join(values['files']) or 'no file of a class'}"
        yield f"Block I/O: {' and '.join(filter(None, (limits, weights))) or NONE}"
    yield f"Governors: {', '.join(values['governors']) or 'none, since Linux does not set the frequencies of CPUs'}"
    yield f"Idle states: {', '.join(values['idle_states']) or NONE}; uncore: {'yes' if values['uncore'] else 'no'}"
    yield f"Real-time policies for containers: {'yes' if values['real_time'] else 'no'}"
    if found := values["resctrl"]:
        yield f"resctrl: {', '.join(found['resources'])}, {count(found['groups'], 'group')}"
    else:
        yield f"resctrl: {values['no_resctrl']}"
