"""What classes can set on a machine: as lines for people, and as JSON for programs."""

from collections.abc import Iterator
from typing import Any

from criproxy.cli.render.topology_words import count
from criproxy.model.controls import BURST, DEFAULTS
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.topology import Topology

NONE = "none"


def controls_json(machine: Controllable, topology: Topology) -> dict[str, Any]:
    """Return the part ``controls`` of `topology`; frequencies in kHz, and what cgroups have, are null if unknown."""
    resctrl, files, is_known = machine.resctrl, topology.control_files, topology.control_files is not None
    v1_files = [BURST] * machine.v1_burst
    return {
        "cgroup_version": 2 if machine.unified else 1,
        "files": v1_files if not machine.unified else sorted(files & DEFAULTS.keys()) if files is not None else None,
        "block_io_limits": machine.throttles if is_known else None,
        "block_io_weights": machine.weights if is_known else None,
        "governors": list(machine.governors),
        "energy_preferences": list(machine.energy_preferences),
        "min_khz": machine.min_khz or None,
        "max_khz": machine.max_khz or None,
        "idle_states": list(machine.c_states),
        "uncore": machine.uncore,
        "resctrl": {
            "resources": [*sorted(resctrl.caches), *(["MB"] if resctrl.bandwidth else [])],
            "groups": resctrl.groups,
        }
        if resctrl
        else None,
        "no_resctrl": machine.no_resctrl,
        "real_time": machine.scheduler.runtime_us != 0 and machine.scheduler.pods_runtime_us != 0,
    }


def control_lines(machine: Controllable, topology: Topology) -> Iterator[str]:
    """Yield what classes can set, one line for each part of a class."""
    values = controls_json(machine, topology)
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
