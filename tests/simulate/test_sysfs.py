"""A made-up machine that is written as /sys is discovered as the same machine."""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.host import discover
from criproxy.model.machine.topology import CpuKind, Die, MemoryKind, NumaNode, Topology
from criproxy.simulate.hosts import GIB, machine
from tests.sysfs import write_sysfs


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Draw a machine with sparse ids, memory-only nodes, dies, hybrid cores, isolated, offline and forbidden CPUs."""
    nodes, cores, threads = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4]))
    plain = machine(nodes, cores, threads, packages=draw(st.integers(1, nodes)))
    online = st.sampled_from(sorted(plain.online_cpus))
    return replace(
        with_nodes(plain, draw(st.lists(st.sampled_from(MemoryKind), max_size=3)), draw(st.integers(1, 50))),
        cpus=frozenset(draw(st.sets(online, min_size=1))),
        isolated_cpus=frozenset(draw(st.sets(online))),
        offline_cpus=frozenset(draw(st.sets(st.integers(max(plain.online_cpus) + 1, 4095), max_size=3))),
        dies=dies(plain) if draw(st.booleans()) and cores > 1 else (),
        cpu_kinds=kinds(plain) if draw(st.booleans()) and len(plain.cores) > 1 else (),
    )


def dies(plain: Topology) -> tuple[Die, ...]:
    """Return a die for the first core of each package, and one for its other cores."""
    found = []
    for package in plain.packages:
        first = plain.core_of[min(package.cpus)].cpus
        found += [Die(package.id, 0, first), Die(package.id, 1, package.cpus - first)]
    return tuple(found)


def kinds(plain: Topology) -> tuple[CpuKind, ...]:
    """Return the last core as a slow one."""
    slow = plain.cores[-1].cpus
    return (CpuKind(slow, 512, 1_000_000, 2_000_000), CpuKind(plain.online_cpus - slow, 1024, 2_000_000, 4_000_000))


def with_nodes(plain: Topology, more: list[MemoryKind], stride: int) -> Topology:
    """Return it with nodes *stride* apart, memory-only ones of these kinds after them, and any distances."""
    nodes = [replace(node, id=node.id * stride) for node in plain.nodes]
    kinds = [MemoryKind.PMEM if kind is MemoryKind.DRAM else kind for kind in more]
    nodes += [NumaNode(1000 + number, frozenset(), GIB, kind=kind) for number, kind in enumerate(kinds)]
    ids = range(len(nodes))
    distances = tuple(tuple(10 if i == j else 11 + (i + 3 * j) % 200 for j in ids) for i in ids)
    mems = frozenset(node.id for node in nodes)
    return replace(plain, nodes=tuple(nodes), mems=mems, distances=distances)


@given(machines())
@settings(max_examples=30)
def test_written_and_read(topology: Topology) -> None:
    """Every field comes back."""
    with tempfile.TemporaryDirectory() as folder:
        write_sysfs(Path(folder), topology)

        assert discover(Path(folder)) == topology
