"""Who shares which CPUs, and what of a grant has nothing to do with that."""

from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.placement.alloc.sharing import divide
from criproxy.simulate.hosts import machine


def test_other_cpus_do_not_change_where_memory_comes_back_to() -> None:
    """Of two on the same CPUs and NUMA nodes one has had to give way in memory: only that one is to come back."""
    division = divide(machine(nodes=2, cores=4, threads=1), frozenset({0}), apart=True)
    pool, cpus, both = division.tree.pools[0].name, frozenset(range(1, 8)), frozenset({0, 1})
    stays, waits = Grant(cpus, both, pool=pool), Grant(cpus, both, pool=pool, home_mems=frozenset({0}))
    owner = Grant(frozenset({7}), both, frozenset({7}), pool)

    moved = division.moved(Node(division.tree.topology, grants={"stays": stays, "waits": waits, "owner": owner}))

    left = frozenset(range(1, 7))
    assert moved == {
        "stays": Grant(left, both, pool=pool),
        "waits": Grant(left, both, pool=pool, home_mems=frozenset({0})),
    }
