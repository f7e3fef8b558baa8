"""Random lives on random machines: whatever comes and goes, memory is promised once and everybody has some."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.model.node import Node, without
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.memory.place_memory import MemoryWish, place_memory, return_memory
from criproxy.simulate.hosts import GIB
from lab.properties.machines import machines
from tests.laws import promised_beyond

Coming = tuple[Container, int, MemoryWish]
"""A container, the place of its NUMA node among all, and what else is wanted."""

wishes = st.builds(MemoryWish, st.just(frozenset()) | st.frozensets(st.sampled_from(MemoryKind)), cold=st.booleans())
comings = st.tuples(
    st.builds(
        lambda number, qos, size: Container(key=f"c{number}", pod="s", name="c", qos=qos, memory_limit_bytes=size),
        st.integers(0, 7),
        st.sampled_from(QosClass),
        st.sampled_from([None, GIB // 2, 5 * GIB, 8 * GIB, 9 * GIB, 15 * GIB, 40 * GIB]),
    ),
    st.integers(0, 7),
    st.just(MemoryWish()) | wishes,
)
lives = st.lists(comings | st.integers(0, 7), min_size=2, max_size=20)


def come(node: Node, coming: Coming, *, pessimistic: bool = False) -> Node:
    """The node with one more container, or another size of one that is there."""
    container, place, wish = coming
    ids = sorted(numa.id for numa in node.topology.nodes)
    near: CpuSet = frozenset({ids[place % len(ids)]})
    had = node.grants.get(container.key, Grant(frozenset({0}), NO_CPUS))
    after = node.replace(containers={**node.containers, container.key: container})
    change = place_memory(after, {container.key: had}, container, near, wish, pessimistic=pessimistic)
    return after.replace(grants={**node.grants, **change.grants})


def go(node: Node, key: str, *, pessimistic: bool = False) -> Node:
    """The node without a container."""
    after = node.replace(containers=without(node.containers, (key,)), grants=without(node.grants, (key,)))
    return after.replace(grants={**after.grants, **return_memory(after, {}, pessimistic=pessimistic).grants})


def live(topology: Topology, life: Sequence[Coming | int], *, pessimistic: bool) -> Node:
    """What a life leaves, if nothing is ever wrong in it."""
    node = Node(topology)
    for event in life:
        if isinstance(event, int):
            node = go(node, f"c{event}", pessimistic=pessimistic)
        else:
            node = come(node, event, pessimistic=pessimistic)
        assert not promised_beyond(node)
        for grant in node.grants.values():
            assert grant.mems
            assert grant.mems <= topology.mems
            assert topology.can_hold(grant.mems)
            assert not grant.home_mems or grant.home_mems < grant.mems
    return node


@given(machines(), lives, st.booleans())
def test_memory_is_promised_once(topology: Topology, life: list[Coming | int], pessimistic: bool) -> None:
    """Nobody is without memory, or without such as the kernel needs; everybody can go."""
    node = live(topology, life, pessimistic=pessimistic)

    for key in list(node.grants):
        node = go(node, key, pessimistic=pessimistic)
    assert not node.grants


@settings(max_examples=100)
@given(machines(), lives, comings)
def test_nobody_goes_to_and_fro(topology: Topology, life: list[Coming | int], coming: Coming) -> None:
    """One that comes and goes again and again moves others no more than the first times."""
    node = live(topology, life, pessimistic=False)
    newcomer = replace(coming[0], key="new")
    seen = [node := go(come(node, (newcomer, *coming[1:])), "new") for _ in range(6)]

    assert seen[-1].grants == seen[-2].grants
