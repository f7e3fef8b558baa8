"""CPUs are taken from as few NUMA nodes as possible, whole cores first, always the same."""

from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.placement.alloc.cpus import Taste, take_cpus
from criproxy.simulate.hosts import machine

machines = st.builds(
    machine, st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), packages=st.sampled_from([1, None])
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[Topology, CpuSet, int]:
    """A machine, some of its CPUs, and a count that fits."""
    topology = draw(machines)
    free = draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    return topology, free, draw(st.integers(0, len(free)))


@given(requests())
def test_takes_what_was_asked_from_the_fewest_nodes(request: tuple[Topology, CpuSet, int]) -> None:
    """Exactly that many, only free ones, and no set of fewer nodes would have had enough."""
    topology, free, count = request
    taken = take_cpus(topology, free, count)
    sizes = sorted((len(node.cpus & free) for node in topology.nodes), reverse=True)
    fewer = sizes[: max(len(topology.nodes_of(taken)) - 1, 0)]

    assert len(taken) == count
    assert taken <= free
    assert count == 0 or sum(fewer) < count


@given(requests())
def test_breaks_at_most_one_core_per_node(request: tuple[Topology, CpuSet, int]) -> None:
    """Of the cores that were wholly free, at most one in the last node is left half used."""
    topology, free, count = request
    taken = take_cpus(topology, free, count)

    assert sum(core.cpus <= free and bool(core.cpus & taken) and not core.cpus <= taken for core in topology.cores) <= 1


tastes = st.builds(Taste, st.frozensets(st.integers(0, 31)), across_cores=st.booleans())


@given(requests(), tastes)
def test_whatever_is_liked(request: tuple[Topology, CpuSet, int], taste: Taste) -> None:
    """Exactly as many, only free ones, the same again, and those liked first as far as they suffice."""
    topology, free, count = request
    taken = take_cpus(topology, free, count, taste)
    liked = free & taste.first

    assert len(taken) == count
    assert taken <= free
    assert take_cpus(topology, free, count, taste) == taken
    assert len(liked) < count or taken <= liked
