"""What `criproxy topology` says in a guest, against the machine that was booted."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from criproxy.model.cpuset import CpuSet
from lab.vm.qemu import GuestMachine
from lab.vm.world import World

PCI_CLASSES = {"bochs-display": "0x03", "e1000e": "0x02"}
"""How the class of a device of QEMU begins."""
KERNEL_TAKES_MIB = 128
"""At most this much of a node's memory is the kernel's own: its image and what describes the memory."""


@cache  # the machine does not change, and an emulated one takes seconds for each start of Python
def discovered() -> dict[str, Any]:
    """What ``criproxy topology --format json`` prints."""
    command = [sys.executable, "-m", "criproxy", "topology", "--format", "json"]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


async def the_topology_is_that_of_the_machine(world: World) -> None:
    """CPUs, sockets, cores, NUMA nodes, their memory and distances, and what pods may use."""
    report, machine = discovered(), world.machine

    assert frozenset(report["online_cpus"]) == frozenset(report["allowed_cpus"]) == machine.chips.cpus
    assert frozenset(report["allowed_mems"]) == world.every_node
    assert report["smt"] == (machine.chips.threads > 1)
    assert _sets(report["cores"]) == _runs(machine, machine.chips.threads)
    assert _sets(package["cpus"] for package in report["packages"]) == _runs(
        machine, len(machine.chips.cpus) // machine.chips.sockets
    )
    assert report["numa_distances"]["matrix"] == [list(row) for row in machine.distances]
    for node, found in zip(machine.nodes, report["numa_nodes"], strict=True):
        assert frozenset(found["cpus"]) == node.cpus
        assert node.memory_mib - KERNEL_TAKES_MIB <= found["memory_bytes"] / (1 << 20) <= node.memory_mib


async def memory_only_nodes_are_recognised(world: World) -> None:
    """Persistent memory as system RAM has no CPUs and no normal memory."""
    found = {node["id"]: node for node in discovered()["numa_nodes"]}

    for number, node in enumerate(world.machine.nodes):
        assert found[number]["memory_only"] == node.pmem
        assert found[number]["normal_memory"] != node.pmem
        assert (found[number]["kind"] == "dram") != node.pmem


async def devices_are_on_their_nodes(world: World) -> None:
    """Every device stands beside the CPUs of the node that it was put on."""
    found = {(d["numa_node"], d["class"][:4]): d for d in discovered()["pci"] if d["numa_node"] >= 0}

    for device in world.hardware.pci:
        place = device.node, PCI_CLASSES[device.device]
        assert place in found, f"{place} is not among {sorted(found)}"
        assert frozenset(found[place]["local_cpus"]) == world.machine.nodes[device.node].cpus


async def isolated_cpus_are_recognised(world: World) -> None:
    """Those that the kernel was booted with."""
    assert frozenset(discovered()["isolated_cpus"]) == world.hardware.isolated


def _sets(lists: Iterable[list[int]]) -> set[CpuSet]:
    return {frozenset(each) for each in lists}


def _runs(machine: GuestMachine, length: int) -> set[CpuSet]:
    """The CPUs cut into runs of *length*: siblings are neighbours."""
    return {frozenset(range(first, first + length)) for first in range(0, len(machine.chips.cpus), length)}
