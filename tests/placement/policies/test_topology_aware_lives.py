"""What holds under the policy topology-aware on any machine, with any options, whatever comes and goes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.machine.topology import Topology
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.alloc.capacity import pool_of
from criproxy.placement.alloc.pools import build_pools
from criproxy.placement.invariants import violations
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import GIB, machine
from tests.placement.lives import live
from tests.placement.policies.shapes import c4pmem4, n4c16, n4c32

NAMES = [f"c{i}" for i in range(12)]


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Up to 8 NUMA nodes in up to 4 sockets, with and without dies, PMEM, isolated and forbidden CPUs."""
    nodes = draw(st.integers(1, 8))
    regular = machine(
        nodes, draw(st.integers(1, 4)), draw(st.integers(1, 4)), packages=draw(st.integers(1, min(nodes, 4)))
    )
    whole = draw(st.sampled_from([regular, regular, n4c16(), n4c32(), c4pmem4()]))
    some = st.frozensets(st.sampled_from(sorted(whole.cpus)))
    allowed = draw(st.one_of(st.just(whole.cpus), some.map(lambda cpus: cpus or whole.cpus)))
    return replace(whole, cpus=allowed, isolated_cpus=draw(st.one_of(st.just(frozenset[int]()), some)))


policies = st.builds(
    lambda reserved, rest: TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": reserved, **rest})),
    st.frozensets(st.integers(0, 8), max_size=3),
    st.fixed_dictionaries(
        {}, optional={name: st.booleans() for name in ("pinCPU", "pinMemory", "preferIsolatedCPUs", "preferSharedCPUs")}
    ),
)
milli = st.sampled_from([0, 2, 100, 250, 999, 1000, 1000, 1500, 2000, 2500, 3000, 4000, 7000])
memory = st.sampled_from([None, GIB, 9 * GIB])
containers = st.builds(
    lambda key, namespace, qos, cpu, limit: Container(
        key=key, pod=f"p{key}", name=key, namespace=namespace, qos=qos, cpu_milli=cpu, memory_limit_bytes=limit
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["shop", "shop", "kube-system"]),
    st.sampled_from(QosClass),
    milli,
    memory,
)
creating = st.builds(ev.ContainerCreating, containers)
events = st.one_of(
    creating,
    creating,
    creating,
    st.builds(ev.ContainerGone, st.sampled_from(NAMES)),
    st.builds(ev.ContainerResized, st.sampled_from(NAMES), st.builds(Sizes, cpu_milli=milli)),
)
lives = st.lists(events, max_size=40)


@given(machines(), policies, lives)
def test_invariants(topology: Topology, policy: TopologyAwarePolicy, life: list[ev.Event]) -> None:
    """No invariant is violated; an isolated CPU is shared only if it is reserved, or where pods have nothing else."""
    isolated = topology.isolated_cpus - policy.options.reserved_cpus
    for _, event, node in live(topology, policy, life):
        assert violations(node, policy.options.reserved_cpus) == [], event
        if policy.options.pin_cpu and topology.cpus - topology.isolated_cpus:
            shared = (grant.cpus - grant.exclusive for grant in node.grants.values())
            assert not frozenset[int]().union(*shared) & isolated


larger = st.builds(
    Sizes, cpu_milli=st.sampled_from([1000, 2000, 3000, 4000, 5000, 7000]), memory_limit_bytes=st.just(GIB)
)
growth = st.lists(
    st.one_of(
        creating,
        st.builds(ev.ContainerResized, st.sampled_from(NAMES), larger),
    ),
    min_size=15,
    max_size=40,
)


@given(st.sampled_from([n4c16(), n4c32()]), policies, growth)
def test_who_is_resized_stays_near_its_memory(
    topology: Topology, policy: TopologyAwarePolicy, life: list[ev.Event]
) -> None:
    """It goes to pools on its own NUMA nodes, or around its pool, and to no others."""
    tree = build_pools(topology)
    for before, event, after in live(topology, policy, life):
        if not isinstance(event, ev.ContainerResized) or event.key not in before.grants:
            continue
        had, has = (tree.by_name.get(node.grants[event.key].pool) for node in (before, after))
        if had and has and had is not has:
            assert has.index in had.path or tree.nodes[has.index] <= tree.nodes[had.index], (had.name, has.name)


quiet = st.lists(
    st.builds(
        lambda key, qos, cpu: ev.ContainerCreating(
            Container(key=key, pod=key, name=key, qos=qos, cpu_milli=cpu if qos is QosClass.GUARANTEED else 0)
        ),
        st.sampled_from(NAMES),
        st.sampled_from([QosClass.GUARANTEED, QosClass.GUARANTEED, QosClass.BEST_EFFORT]),
        milli.map(lambda cpu: cpu // 1000 * 1000),
    )
    | st.builds(ev.ContainerGone, st.sampled_from(NAMES)),
    max_size=30,
)


@given(machines(), policies, quiet)
def test_who_fits_a_free_node_never_spans_two(
    topology: Topology, policy: TopologyAwarePolicy, life: list[ev.Event]
) -> None:
    """An owner that some NUMA node without containers has room for gets all its CPUs from one node."""
    usable = topology.cpus - topology.isolated_cpus - policy.options.reserved_cpus
    for before, event, after in live(topology, policy, life):
        if not isinstance(event, ev.ContainerCreating) or event.container.key not in after.grants:
            continue
        grant = after.grants[event.container.key]
        used = frozenset[int]().union(*(other.cpus for other in before.grants.values()))
        free = [node.cpus & usable for node in topology.nodes if not node.cpus & used]
        if grant.exclusive and any(len(cpus) >= len(grant.exclusive) for cpus in free):
            assert len(topology.nodes_of(grant.exclusive)) <= 1


@given(machines(), policies, lives)
def test_sharers_stay_in_their_pool(topology: Topology, policy: TopologyAwarePolicy, life: list[ev.Event]) -> None:
    """Whoever comes, goes or resizes, others keep their pool, and run in it while it has shared CPUs."""
    tree = build_pools(topology)
    for before, event, after in live(topology, policy, life):
        for key in before.grants.keys() & after.grants.keys() - {getattr(event, "key", "")}:
            old, new = before.grants[key], after.grants[key]
            assert (old.pool, old.exclusive) == (new.pool, new.exclusive)
            pool = pool_of(tree, new).cpus - topology.isolated_cpus - policy.options.reserved_cpus
            if policy.options.pin_cpu and new.pool in tree.by_name and pool - after.exclusive_cpus:
                assert new.cpus - new.exclusive <= pool
