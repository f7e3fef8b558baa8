"""How much CPU is free on each NUMA node."""

from dataclasses import replace

import pytest

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import NO_CPUS, Applied, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement.alloc.booked_cpus import free_milli
from criproxy.simulate.hosts import machine

TWO = machine(nodes=2, cores=4, threads=1)
"""CPUs 0-3 and 4-7."""
RESERVED = parse_cpuset("0")


def node(*placed: tuple[int, str, str]) -> Node:
    """A node with containers: milli-CPU, CPUs, and which of these are exclusive."""
    running, keys = ContainerState.RUNNING, map(str, range(len(placed)))
    containers = {
        key: Container(key=key, pod=key, name="main", qos=QosClass.BURSTABLE, cpu_milli=milli, state=running)
        for key, (milli, _, _) in zip(keys, placed, strict=True)
    }
    grants = {
        str(number): Grant(parse_cpuset(cpus), NO_CPUS, exclusive=parse_cpuset(owned) if owned else NO_CPUS)
        for number, (_, cpus, owned) in enumerate(placed)
    }
    return Node(TWO, containers=containers, grants=grants)


def free(of: Node, reserved: CpuSet = RESERVED) -> list[int]:
    """Of each NUMA node."""
    return [free_milli(of, reserved)[number] for number in (0, 1)]


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        pytest.param([], [3000, 4000], id="nobody"),
        pytest.param([(2000, "4-5", "4-5")], [3000, 2000], id="exclusive"),
        pytest.param([(2500, "4-7", "4-5")], [3000, 1500], id="exclusive-and-shared"),
        pytest.param(
            [(700, "1-3", ""), (700, "1-7", "")], [3000 - 700 - 300, 4000 - 400], id="by-its-cpus-on-each-node"
        ),
        pytest.param([(9000, "4-7", "")], [3000, 0], id="more-than-there-is"),
    ],
)
def test_what_is_free(placed: list[tuple[int, str, str]], expected: list[int]) -> None:
    """All usable CPUs but the reserved ones, without what containers have alone or ask for."""
    assert free(node(*placed)) == expected


def test_containers_that_have_ended() -> None:
    """They ask for nothing any more."""
    before = node((700, "1-3", ""))
    ended = {"0": replace(before.containers["0"], state=ContainerState.EXITED)}
    assert free(before.replace(containers=ended)) == [3000, 4000]


def test_containers_without_a_place() -> None:
    """One that is watched counts where it runs."""
    before = node((800, "1-3", ""))
    watched = before.replace(grants={}, applied={"0": Applied(parse_cpuset("4-7"), NO_CPUS)})
    assert free(watched) == [3000, 3200]
