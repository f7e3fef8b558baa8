"""What is free in a pool respects all who share in it, around it and under it."""

import pytest

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.capacity import Capacity, Load, Loads, capacity, pool_of
from criproxy.placement.alloc.pools import MACHINE, build_pools
from tests.placement.policies.shapes import n4c16

TREE = build_pools(n4c16())
NONE: CpuSet = frozenset()


def room(*sharers: tuple[str, int], owned: str = "", kept: int = 0) -> Capacity:
    """The machine with containers (pool, milli-CPU) that share, and owned CPUs."""
    grants = {str(i): Grant(TREE.by_name[pool].cpus, NONE, pool=pool) for i, (pool, _) in enumerate(sharers)}
    containers = {
        str(i): Container(key=str(i), pod="s", name=str(i), qos=QosClass.BURSTABLE, cpu_milli=milli)
        for i, (_, milli) in enumerate(sharers)
    }
    if owned:
        grants["own"] = Grant(parse_cpuset(owned), NONE, parse_cpuset(owned), TREE.home(parse_cpuset(owned)).name)
    node = Node(TREE.topology, containers=containers, grants=grants)
    return capacity(node, Loads(TREE, "elsewhere"), TREE.topology.cpus, kept)


def index(name: str) -> int:
    """The number of a pool."""
    return TREE.by_name[name].index


@pytest.mark.parametrize(
    ("sharers", "owned", "pool", "free_milli"),
    [
        pytest.param([], "", MACHINE, 16_000, id="idle"),
        pytest.param([("NUMA node 0", 1500)], "", "NUMA node 0", 2500, id="itself"),
        pytest.param([("NUMA node 0", 1500)], "", "socket 0", 6500, id="around"),
        pytest.param([("NUMA node 0", 1500)], "", "NUMA node 1", 4000, id="beside"),
        pytest.param([("socket 0", 6500)], "", "NUMA node 0", 1500, id="limited-by-who-is-around"),
        pytest.param([], "0-2", "NUMA node 0", 1000, id="owned"),
        pytest.param([("NUMA node 0", 1500)], "0-2", "NUMA node 0", -500, id="too-much"),
    ],
)
def test_free(sharers: list[tuple[str, int]], owned: str, pool: str, free_milli: int) -> None:
    """A request counts in its pool and in all around it, and no pool has more free than what is around it."""
    assert room(*sharers, owned=owned).free_milli[index(pool)] == free_milli


@pytest.mark.parametrize(
    ("sharers", "kept", "pool", "spare"),
    [
        pytest.param([], 0, "NUMA node 0", 4, id="idle"),
        pytest.param([], 1, MACHINE, 15, id="one-is-kept"),
        pytest.param([], 1, "socket 0", 8, id="kept-anywhere"),
        pytest.param([("NUMA node 0", 0)], 0, "NUMA node 0", 3, id="zero-requests-need-one"),
        pytest.param([("NUMA node 0", 1001)], 0, "NUMA node 0", 2, id="rounded-up"),
        pytest.param([("NUMA node 0", 600), ("NUMA node 0", 600)], 0, "NUMA node 0", 2, id="together"),
        pytest.param([("NUMA node 0", 1001), ("NUMA node 1", 100)], 0, "socket 0", 5, id="each-node-keeps-its-own"),
        pytest.param([("socket 0", 6000)], 0, "NUMA node 0", 2, id="who-is-around-needs-it"),
        pytest.param([("NUMA node 0", 9000)], 0, "NUMA node 0", 0, id="too-much"),
    ],
)
def test_spare(sharers: list[tuple[str, int]], kept: int, pool: str, spare: int) -> None:
    """What can be owned leaves to everybody what they were granted."""
    assert room(*sharers, kept=kept).spare(index(pool)) == spare


def test_an_owner_that_also_shares_needs_more() -> None:
    """Its own fraction counts with those of the others."""
    assert room(("NUMA node 0", 600)).spare(index("NUMA node 0"), joining_milli=500) == 2


@pytest.mark.parametrize(
    ("count", "own", "expected"),
    [
        pytest.param(4, "", "2-3,6-7", id="what-nodes-can-spare"),
        pytest.param(2, "5", "4-5", id="what-it-has-and-the-same-core"),
        pytest.param(7, "", "0-4,6-7", id="more-than-can-be-spared"),
    ],
)
def test_take(count: int, own: str, expected: str) -> None:
    """CPUs come from where they are spare; if that is not enough, from where they are needed."""
    taken = room(("NUMA node 0", 1500), ("NUMA node 1", 1500)).take(index("socket 0"), count, parse_cpuset(own))

    assert format_cpuset(taken) == expected


def test_loads_add_up() -> None:
    """Owners are containers that do not share, and ancestors have what their parts have."""
    capacities = room(("NUMA node 0", 100), ("socket 0", 200), ("NUMA node 3", 400), owned="4-5")

    assert capacities.loads[index("NUMA node 1")] == Load(0, 0, 1)
    assert capacities.loads[index("socket 0")] == Load(300, 2, 3)
    assert capacities.loads[0] == Load(700, 3, 4)


@pytest.mark.parametrize(
    ("grant", "pool"),
    [
        pytest.param(Grant(parse_cpuset("0"), NONE, pool="socket 1"), "socket 1", id="as-it-says"),
        pytest.param(Grant(parse_cpuset("0-2"), NONE), "NUMA node 0", id="no-name"),
        pytest.param(Grant(parse_cpuset("0-5"), NONE, pool="balloon 7"), "socket 0", id="name-of-another-policy"),
    ],
)
def test_pool_of(grant: Grant, pool: str) -> None:
    """A grant is in the pool that it names; otherwise its CPUs tell."""
    assert pool_of(TREE, grant).name == pool
