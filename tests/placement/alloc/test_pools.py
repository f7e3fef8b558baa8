"""The tree of pools follows the machine and has no level that says nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Die, NumaNode, Package, Topology
from criproxy.placement.alloc.pools import build_pools
from criproxy.simulate.hosts import machine
from tests.placement.policies.shapes import n4c16

SERVER = machine(nodes=2, cores=4, threads=2)


def drawn(topology: Topology) -> list[str]:
    """The pools, indented, with their CPUs."""
    return [
        f"{'  ' * (len(pool.path) - 1)}{pool.name}: {format_cpuset(pool.cpus)}" for pool in build_pools(topology).pools
    ]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        pytest.param(
            n4c16(),
            [
                "the machine: 0-15",
                "  socket 0: 0-7",
                "    NUMA node 0: 0-3",
                "    NUMA node 1: 4-7",
                "  socket 1: 8-15",
                "    NUMA node 2: 8-11",
                "    NUMA node 3: 12-15",
            ],
            id="sockets-of-nodes",
        ),
        pytest.param(
            replace(SERVER, nodes=(NumaNode(0, SERVER.cpus, 0),)),
            ["the machine: 0-15", "  socket 0: 0-3,8-11", "  socket 1: 4-7,12-15"],
            id="numa-off",
        ),
        pytest.param(
            replace(SERVER, nodes=(NumaNode(0, parse_cpuset("0-3,8-11"), 0),)),
            ["the machine: 0-15", "  NUMA node 0: 0-3,8-11", "  socket 1: 4-7,12-15"],
            id="cpus-in-no-node",
        ),
        pytest.param(
            replace(machine(cores=8, threads=1), dies=(Die(0, 0, parse_cpuset("0-3")), Die(0, 1, parse_cpuset("4-7")))),
            ["the machine: 0-7", "  die 0 in NUMA node 0: 0-3", "  die 1 in NUMA node 0: 4-7"],
            id="dies-that-share-a-node",
        ),
        pytest.param(
            replace(machine(nodes=1, cores=4, threads=1), packages=(Package(-1, parse_cpuset("0-3")),), nodes=()),
            ["the machine: 0-3"],
            id="little-is-known",
        ),
    ],
)
def test_machines(topology: Topology, expected: list[str]) -> None:
    """Levels with a single part collapse, and the name is that of the smallest part."""
    assert drawn(topology) == expected


machines = st.builds(
    lambda nodes, cores, sockets, allowed: machine(
        nodes, cores, 2, packages=min(nodes, sockets), allowed=frozenset(allowed) | {0}
    ),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 4),
    st.frozensets(st.integers(0, 63)),
)


@given(machines)
def test_shape(topology: Topology) -> None:
    """Parts lie apart within their pool and are smaller; names differ; the root has all CPUs."""
    tree = build_pools(topology)

    assert tree.pools[0].cpus == topology.cpus
    assert len(tree.by_name) == len(tree.pools)
    for pool, parts in zip(tree.pools, tree.children, strict=True):
        cpus = [tree.pools[part].cpus for part in parts]
        assert all(part < pool.cpus for part in cpus)
        assert sum(map(len, cpus)) == len(frozenset().union(*cpus))
        assert all(tree.pools[part].path == (part, *pool.path) for part in parts)


CACHES = replace(n4c16(), l3_groups=tuple(map(parse_cpuset, ["0-3", "4-5", "6-7", "8-11", "12-15"])))
WIDE = replace(machine(nodes=1, cores=8, threads=1), l3_groups=tuple(map(parse_cpuset, ["0-3", "4-7"])))


def test_caches_are_the_smallest_pools() -> None:
    """Where a NUMA node has several that more than one core shares; those of single cores count as none."""
    assert drawn(WIDE) == ["the machine: 0-7", "  L3 cache 0: 0-3", "  L3 cache 1: 4-7"]
    assert "L3" not in " ".join(drawn(CACHES))
    assert len(build_pools(WIDE, caches=False).pools) == 1
