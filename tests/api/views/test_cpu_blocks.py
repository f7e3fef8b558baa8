"""The order in which the CPUs of a machine are side by side."""

import pytest

from criproxy.api.views.cpu_blocks import Block, blocks_of
from criproxy.simulate.hosts import machine


@pytest.mark.parametrize(
    ("nodes", "cores", "packages", "expected"),
    [
        pytest.param(1, 2, 1, [Block(0, 0, ((0, 2, 1, 3),))], id="threads-of-a-core-are-neighbours"),
        pytest.param(2, 1, 2, [Block(0, 0, ((0, 2),)), Block(1, 1, ((1, 3),))], id="sockets"),
    ],
)
def test_the_blocks_of_a_machine(nodes: int, cores: int, packages: int, expected: list[Block]) -> None:
    """One for each NUMA node, in order."""
    assert blocks_of(machine(nodes=nodes, cores=cores, threads=2, packages=packages)) == expected


def test_every_cpu_is_in_one_block() -> None:
    """Of a machine with 384 of them, too."""
    topology = machine(nodes=8, cores=24, threads=2, packages=2)

    assert sorted(cpu for block in blocks_of(topology) for cpu in block.cpus) == sorted(topology.online_cpus)
