"""What the page of ``--http`` shows beside the answers of commands: the machine as it is drawn, and promised memory.

Pure functions, like the other views. docs/page.md documents the keys.
"""

from collections.abc import Mapping
from itertools import groupby

from criproxy.api.views.cpu_blocks import blocks_of
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import ContainerState

PLACING = (Kind.GRANTED, Kind.ADOPTED, Kind.PASSED)
"""Kinds of records that begin the life of a container, and say why it is where it is."""
MOVING = (Kind.RESIZED, Kind.RELEASED)
"""Kinds of records after which the reason is another one."""


def machine(topology: Topology) -> Values:
    """The CPUs as they lie beside each other: NUMA nodes, their level 3 caches, and the threads of each core."""
    core_of = topology.core_of

    def cores(cpus: tuple[int, ...]) -> list[list[int]]:
        return [[*threads] for _, threads in groupby(cpus, key=lambda cpu: core_of[cpu].id if cpu in core_of else cpu)]

    return {
        "blocks": [
            {
                "package": block.package if block.package >= 0 else None,
                "numa_node": block.node if block.node >= 0 else None,
                "caches": [cores(group) for group in block.groups],
            }
            for block in blocks_of(topology)
        ],
        "memory": [
            {
                "numa_node": numa.id,
                "kind": numa.kind.value,
                "memory_bytes": numa.memory_bytes,
                "usable": numa.id in topology.mems,
            }
            for numa in topology.nodes
            if numa.memory_bytes
        ],
    }


def promised(node: Node) -> list[Values]:
    """How much memory containers may use at the most, by the NUMA nodes on which they may use it.

    Containers without a limit are only counted, since they are promised nothing.
    """
    limits = dict[CpuSet, list[int]]()
    for key, grant in node.grants.items():
        container = node.containers.get(key)
        if container and grant.mems and container.state is not ContainerState.EXITED:
            limits.setdefault(grant.mems, []).append(container.memory_limit_bytes or 0)
    return [
        {
            "mems": format_cpuset(mems),
            "bytes": sum(sizes),
            "containers": len(sizes),
            "unlimited": sizes.count(0),
        }
        for mems, sizes in sorted(limits.items(), key=lambda item: (len(item[0]), sorted(item[0])))
    ]


def placing(record: Record, known: Mapping[str, str]) -> Mapping[str, str] | None:
    """Since when a container exists, and why it is where it is, as *record* says; None if it says nothing of that.

    Args:
        record: the next one of its history.
        known: what the records before said; empty if there were none.
    """
    if record.kind not in PLACING and not (known and record.kind in MOVING):
        return None
    said = record.sentences[0].removeprefix(record.container).lstrip(": ") if record.sentences else ""
    return {"since": known.get("since") or timestamp(record.at_s), "why": said}
