"""Random machines and lives of containers, for property tests."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hypothesis import strategies as st

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.kept import NOTHING, owned_by
from criproxy.simulate.hosts import GIB, machine

RESERVATIONS = [f"r{i}" for i in range(6)]
PODS = ["s0", "s1"]
KEYS = RESERVATIONS + [f"id-{key}" for key in RESERVATIONS]


def pod_cpus(node: Node, uid: str) -> CpuSet:
    """All CPUs that the pod *uid* has alone: those of its containers, and those that are kept for it."""
    return owned_by(node, uid) | node.kept.get(uid, NOTHING).cpus


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Up to 4 NUMA nodes of 4 cores, of which pods may use all or a part."""
    whole = machine(draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 2)))
    if draw(st.booleans()):
        return whole
    allowed = draw(st.frozensets(st.sampled_from(sorted(whole.cpus)), min_size=1))
    return machine(len(whole.nodes), len(whole.nodes[0].cpus), 1, allowed=allowed)


cpu_sizes = st.sampled_from([0, 250, 1000, 2000, 3000, 5000])
memory_sizes = st.sampled_from([None, GIB, 9 * GIB])
containers = st.builds(
    Container,
    key=st.sampled_from(RESERVATIONS),
    pod=st.sampled_from(PODS),
    name=st.sampled_from("ab"),
    attempt=st.integers(0, 2),
    qos=st.sampled_from(QosClass),
    namespace=st.sampled_from(["", "kube-system"]),
    cpu_milli=cpu_sizes,
    cpu_limit_milli=st.none() | cpu_sizes,
    memory_limit_bytes=memory_sizes,
    stays=st.sampled_from([False, False, False, True]),
)
sizes = st.builds(Sizes, cpu_milli=cpu_sizes, cpu_limit_milli=st.none() | cpu_sizes, memory_limit_bytes=memory_sizes)
keys = st.sampled_from(KEYS)
cpu_sets = st.frozensets(st.integers(0, 7))
applied = st.builds(Applied, cpu_sets, st.frozensets(st.integers(0, 3)), st.booleans())


totals = st.sampled_from([0, 1000, 2000, 3000, 4000, 6000])
"""Of a whole pod; with 0, nobody says it."""
pods = st.builds(
    Pod,
    key=st.sampled_from(PODS),
    uid=st.sampled_from(["", "u0", "u0", "u1"]),
    attempt=st.integers(0, 1),
    cpu_total_milli=totals,
)
inherited = st.dictionaries(st.sampled_from("ab"), cpu_sets.filter(bool), max_size=2)


def _key(present: ev.Present) -> str:
    return present.container.key


@st.composite
def presents(draw: st.DrawFn) -> ev.Present:
    """A container of ours or of others that the runtime has."""
    container = draw(containers)
    state = draw(st.sampled_from([ContainerState.CREATED, ContainerState.RUNNING, ContainerState.UNKNOWN]))
    key = f"{draw(st.sampled_from(['id', 'foreign']))}-{container.key}"
    reservation = container.key if key.startswith("id-") else ""
    return ev.Present(replace(container, key=key, state=state, reservation=reservation), draw(st.none() | applied))


found = st.builds(ev.Found, containers=st.lists(presents(), max_size=5, unique_by=_key).map(tuple), watch=st.booleans())
events = st.one_of(
    st.builds(ev.ContainerCreating, containers),
    st.builds(ev.ContainerCreating, containers),
    st.sampled_from(RESERVATIONS).map(lambda key: ev.ContainerCreated(key, f"id-{key}")),
    st.sampled_from(RESERVATIONS).map(lambda key: ev.ContainerCreated(key, f"id-{key}")),
    st.builds(ev.ContainerStarted, keys),
    st.builds(ev.ContainerExited, keys),
    st.builds(ev.ContainerGone, keys),
    st.builds(ev.UnknownOutcome, keys),
    st.builds(ev.ContainerResized, keys, sizes),
    st.builds(ev.ColdStartEnded, keys),
    st.builds(ev.PolicyChanged, apply_all=st.booleans()),
    st.builds(ev.UpdateApplied, keys, st.builds(Applied, cpu_sets, st.frozensets(st.integers(0, 3)), st.booleans())),
    st.builds(ev.PodCreated, pods, inherited),
    st.builds(ev.PodResized, st.sampled_from(PODS), totals),
    st.builds(ev.PodNotReady, st.sampled_from(PODS)),
    st.builds(ev.PodStopped, st.sampled_from(PODS)),
    st.builds(ev.PodGone, st.sampled_from(PODS)),
)
lives = st.lists(events, max_size=30)
released = st.just(ev.Released("somebody asked for it"))
lives_with_found = st.lists(st.one_of(found, released, events, events, events), max_size=30)
"""Some containers are in places that the policy would not have given them: found there, or left over from a release."""


def reservations(event: ev.Event) -> frozenset[str]:
    """The reservation ids that *event* brings: they are fresh in real life, so no later create may have one."""
    if isinstance(event, ev.Found):
        return frozenset(present.container.reservation for present in event.containers)
    return frozenset({event.container.key} if isinstance(event, ev.ContainerCreating) else ())


def live(topology: Topology, policy: Policy, life: Iterable[ev.Event]) -> Iterator[tuple[Node, ev.Event, Node]]:
    """Run *life* and yield the state before each event, the event and the state after; refusals change nothing.

    A create whose reservation id is taken already is left out: see `reservations`.
    """
    node = Node(topology)
    used: set[str] = set()
    for event in life:
        if isinstance(event, ev.ContainerCreating) and event.container.key in used:
            continue
        used |= reservations(event)
        before = node
        try:
            node = step(node, event, policy).node
        except Refused:
            node = before
        yield before, event, node
