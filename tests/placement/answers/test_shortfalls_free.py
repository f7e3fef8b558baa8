"""How much CPU is free on each NUMA node."""

from dataclasses import replace

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import NO_CPUS, Applied, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement.answers.shortfalls import free_milli
from criproxy.simulate.hosts import machine

TWO = machine(nodes=2, cores=4, threads=1)
"""CPUs 0-3 and 4-7."""
RESERVED = parse_cpuset("0")


def container(key: str, milli: int) -> Container:
    """A running container."""
    return Container(
        key=key,
        pod=f"pod-{key}",
        name="main",
        pod_name=key,
        namespace="default",
        qos=QosClass.BURSTABLE,
        cpu_milli=milli,
        state=ContainerState.RUNNING,
    )


def node(*placed: tuple[int, str, str]) -> Node:
    """A node with containers: milli-CPU, CPUs, and which of these are exclusive."""
    containers = {str(number): container(str(number), milli) for number, (milli, _, _) in enumerate(placed)}
    grants = {
        str(number): Grant(parse_cpuset(cpus), NO_CPUS, exclusive=parse_cpuset(owned) if owned else NO_CPUS)
        for number, (_, cpus, owned) in enumerate(placed)
    }
    return Node(TWO, containers=containers, grants=grants)


def free(of: Node, reserved: CpuSet = RESERVED) -> list[int]:
    """Of each NUMA node."""
    return [free_milli(of, reserved)[number] for number in (0, 1)]


def test_empty_node() -> None:
    """All usable CPUs but the reserved ones are free."""
    assert free(node()) == [3000, 4000]


def test_exclusive_cpus() -> None:
    """They are not free, and what their container asks for is not counted once more."""
    assert free(node((2000, "4-5", "4-5"))) == [3000, 2000]


def test_exclusive_and_shared_cpus() -> None:
    """Of a container that has both, what exceeds the exclusive ones counts where it shares."""
    assert free(node((2500, "4-7", "4-5"))) == [3000, 1500]


def test_shared_cpus() -> None:
    """A container that shares counts on each NUMA node by the number of its CPUs there."""
    assert free(node((700, "1-3", ""), (700, "1-7", ""))) == [3000 - 700 - 300, 4000 - 400]


def test_more_is_promised_than_there_is() -> None:
    """Less than nothing is nothing."""
    assert free(node((9000, "4-7", ""))) == [3000, 0]


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
