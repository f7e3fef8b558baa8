"""One random case: a machine, a policy file's options, what happens, and whether all that must be true is."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args, get_origin

from hypothesis import strategies as st

from criproxy.errors import Refused
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.model.node import Node
from criproxy.model.resources import Interval
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options, options_of
from criproxy.placement.policies import Entry
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.balloons import BalloonsOptions
from criproxy.simulate.hosts import GIB
from lab.properties.balloons import balloon_options
from lab.properties.desired import gives_what_was_wanted, refusal_moves_nobody
from lab.properties.machines import machines, narrowed
from lab.properties.shapes import reserving, shape_of
from lab.properties.wishes import annotated
from tests import laws
from tests.explained import explanation_is_true
from tests.placement.lives import PODS, containers, cpu_sizes, events, found, reservations

CONTAINERS = 12
"""That may come in one life."""

limits = st.sampled_from([None, GIB // 2, 7 * GIB, 9 * GIB, 14 * GIB])
"""Memory: two of the larger ones are too much for any NUMA node."""
requests = st.sampled_from([None, None, Interval(GIB, GIB), Interval(3 * GIB, 5 * GIB)])
sizes = st.builds(
    Sizes,
    cpu_milli=cpu_sizes,
    cpu_limit_milli=st.none() | cpu_sizes,
    memory_limit_bytes=limits,
    memory_request_bytes=requests,
)

File = Mapping[str, object]
"""The options that a policy file gives, by name."""
Build = Callable[[str, File], Policy]
"""Makes a policy of a name with the options of a file."""
ALL_PODS = (*PODS, "s2", "s3")
NAMESPACES = ("", "", "team", "team", "team", "kube-system")


@dataclass(frozen=True, slots=True)
class Case:
    """What happens on one machine."""

    topology: Topology
    files: Mapping[str, File]
    """By policy, what it begins with."""
    life: Sequence[ev.Event]
    changes: Sequence[tuple[str, File]]
    """The policy and the file that each `PolicyChanged` goes on with: often the same policy with other options."""
    newcomer: Container


@dataclass(slots=True)
class Tally:
    """What was tried, to see that it was something; as the report has it."""

    machines: int = 0
    machines_by_numa_nodes: Counter[int] = field(default_factory=Counter)
    machines_with: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    most_containers_at_once: int = 0
    lives_with_owners: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, object]:
        """For the report."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def add(self, other: "Tally") -> None:
        """Count what another process has tried, too."""
        most = max(self.most_containers_at_once, other.most_containers_at_once)
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.most_containers_at_once = most


MORE: Mapping[type[Options], Callable[[Topology], st.SearchStrategy[dict[str, object]]]] = {
    BalloonsOptions: balloon_options,
}
"""Further options of policies that have others than switches, by the class of their options."""


def file_for(entry: Entry, topology: Topology, draw: st.DrawFn) -> File:
    """Valid options for a policy: each at random, CPUs from the machine; what contradicts another is left out."""
    chosen = _options(entry, topology, draw) | draw(reserving(topology))
    while wrong := next(entry.options.model_validate(chosen).contradictions(), None):
        del chosen[str(wrong.path[0])]
    return chosen


def _options(entry: Entry, topology: Topology, draw: st.DrawFn) -> dict[str, object]:
    """All that have no contradictions of their own; those whose type says too little about their values are left."""
    chosen: dict[str, object] = {}
    for name, option in entry.options.model_fields.items():
        if option.annotation is bool:
            # The default more often than not: of many switches one or two would keep everything else from being tried.
            chosen[option.alias or name] = draw(st.sampled_from([option.default, option.default, not option.default]))
        elif get_origin(option.annotation) is Literal:
            chosen[option.alias or name] = draw(st.sampled_from(get_args(option.annotation)))
        elif shape := shape_of(option.annotation):
            chosen[option.alias or name] = draw(shape(topology))
        elif option.is_required():
            chosen[option.alias or name] = draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    more = MORE.get(entry.options)
    return chosen | draw(more(topology)) if more else chosen


def _arrival(number: int) -> st.SearchStrategy[ev.Event]:
    """A container comes; half of them are Guaranteed."""
    return st.builds(
        ev.ContainerCreating,
        st.builds(
            Container,
            key=st.just(f"r{number}"),
            pod=st.sampled_from(ALL_PODS),
            name=st.just(f"c{number}"),
            namespace=st.sampled_from(NAMESPACES),
            qos=st.sampled_from([QosClass.GUARANTEED, QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT]),
            cpu_milli=cpu_sizes,
            cpu_limit_milli=st.none() | cpu_sizes,
            memory_limit_bytes=limits,
            memory_request_bytes=requests,
            hints=st.lists(st.frozensets(st.integers(0, 3), min_size=1), max_size=2).map(tuple),
        ),
    )


def _progress(number: int) -> st.SearchStrategy[ev.Event]:
    """What may become of a container in the course of its life."""
    runtime_id = f"id-r{number}"
    made: list[ev.Event] = [ev.ContainerCreated(f"r{number}", runtime_id), ev.ContainerStarted(runtime_id)]
    ended: list[ev.Event] = [ev.ContainerExited(runtime_id), ev.ContainerGone(runtime_id)]
    keys = st.sampled_from([f"r{number}", runtime_id])
    resized = st.builds(ev.ContainerResized, keys, sizes)
    refused = st.builds(ev.ResizeRefused, keys, sizes, st.just(1.0), st.booleans())
    desired = st.one_of(refused, st.builds(ev.Promoted, keys))
    return st.one_of(st.sampled_from(made), st.sampled_from(made), resized, desired, st.sampled_from(ended))


def _restart(number: int) -> st.SearchStrategy[ev.Event]:
    """The next attempt of a container comes, mostly of the same size and in the same pod as the one before."""
    return st.builds(
        ev.ContainerCreating,
        st.builds(
            Container,
            key=st.sampled_from([f"r{number}-{attempt}" for attempt in (1, 2, 3)]),
            pod=st.sampled_from([ALL_PODS[number % len(ALL_PODS)], *ALL_PODS]),
            name=st.just(f"c{number}"),
            attempt=st.integers(1, 3),
            qos=st.just(QosClass.GUARANTEED),
            cpu_milli=cpu_sizes,
        ),
    )


ARRIVALS = [_arrival(number) for number in range(CONTAINERS)]
PROGRESS = [_progress(number) | _restart(number) for number in range(CONTAINERS)]
KINDS = (*["comes"] * 5, *["goes on"] * 5, "changes", "found", "else")
"""What may happen, as often as it should."""


@st.composite
def _happenings(draw: st.DrawFn, topology: Topology) -> list[ev.Event]:
    """Containers come one after the other, and something becomes of those that are there."""
    happened: list[ev.Event] = []
    changes = st.builds(ev.PolicyChanged, st.booleans()) | st.builds(ev.TopologyChanged, narrowed(topology))
    come = 0
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=12, max_size=36)):
        if kind == "comes" and come < CONTAINERS:
            happened.append(draw(ARRIVALS[come]))
            come += 1
        elif kind == "goes on" and come:
            happened.append(draw(PROGRESS[draw(st.integers(0, come - 1))]))
        else:
            happened.append(draw(changes if kind == "changes" else found if kind == "found" else events))
    return happened


@st.composite
def cases(draw: st.DrawFn, entries: Mapping[str, Entry]) -> Case:
    """A case for the policies *entries*, each of which may be changed for another of them."""
    topology = draw(machines())
    files = {name: file_for(entry, topology, draw) for name, entry in entries.items()}
    life: list[ev.Event] = [*(draw(annotated(ALL_PODS[:3])) if draw(st.booleans()) else ())]
    life += draw(_happenings(topology))
    nexts = [draw(st.sampled_from(list(entries))) for _ in range(sum(isinstance(e, ev.PolicyChanged) for e in life))]
    changes = [(name, file_for(entries[name], topology, draw)) for name in nexts]
    newcomer = replace(draw(containers), key="newcomer", name="newcomer")
    return Case(topology, files, life, changes, newcomer)


def live(case: Case, name: str, tally: Tally, build: Build) -> Iterator[str]:
    """Run the case from the policy *name* on; a sentence for all that is wrong."""
    node, policy, changes = Node(case.topology), build(name, case.files[name]), list(case.changes)
    used: set[str] = set()
    owned = False
    _count_machine(case.topology, tally)
    for event in case.life:
        if isinstance(event, ev.PolicyChanged):
            policy = build(*changes.pop(0))
        if isinstance(event, ev.ContainerCreating) and event.container.key in used:
            continue
        used |= reservations(event)
        tally.events[type(event).__name__] += 1
        yield from explanation_is_true(node, event, policy)
        try:
            decision = step(node, event, policy)
        except Refused:
            tally.refusals += 1
            continue
        yield from _wrong(node, event, policy, decision)
        node = decision.node
        owned = owned or bool(node.exclusive_cpus)
        tally.most_containers_at_once = max(tally.most_containers_at_once, len(node.grants))
    tally.lives_with_owners += owned
    for key in node.grants:
        yield from laws.release_gives_back(node, key, policy)
    yield from laws.departure_undoes_arrival(node, case.newcomer, policy)


def _wrong(before: Node, event: ev.Event, policy: Policy, decision: Decision) -> Iterator[str]:
    """A sentence for all that is wrong with one step."""
    after = decision.node
    yield from laws.step_is_deterministic(before, event, policy, decision)
    yield from violations(after)
    if isinstance(event, ev.ResizeRefused):
        yield from refusal_moves_nobody(before, event, decision)
    if isinstance(event, ev.Promoted):
        yield from gives_what_was_wanted(before, event, policy, decision)
    if after.grants is before.grants:
        return
    yield from nobody_comes_to_own_reserved_cpus(before, after, policy)
    if isinstance(event, ev.PolicyChanged):
        yield from laws.memory_stays(before, after)
    if _promises_memory(before, event):
        within = options_of(policy).within  # the part of the machine that the policy uses
        yield from laws.memory_is_promised_once(within(before), within(after))


def nobody_comes_to_own_reserved_cpus(before: Node, after: Node, policy: Policy) -> Iterator[str]:
    """Owners from before a CPU was reserved may keep it."""
    reserved = options_of(policy).reserved(after.topology)
    had = {before.containers[key].life: grant.exclusive for key, grant in before.grants.items()}
    for key, grant in after.grants.items():
        container = after.containers[key]
        if wrong := (grant.exclusive - had.get(container.life, NO_CPUS)) & reserved:
            yield f"{container.title} has exclusive use of reserved CPUs {format_cpuset(wrong)} from now on"


def _promises_memory(node: Node, event: ev.Event) -> bool:
    """Whether nobody may be promised too much after *event*: somebody came, went, or has another size."""
    if isinstance(event, ev.ContainerResized | ev.Promoted):  # who is left where it is may grow there
        had = node.grants.get(event.key)
        return had is not None and bool(had.mems)
    return isinstance(event, ev.ContainerCreating | ev.ContainerExited | ev.ContainerGone)


def _count_machine(topology: Topology, tally: Tally) -> None:
    tally.machines += 1
    tally.machines_by_numa_nodes[len(topology.nodes)] += 1
    found = {
        "memory-only node": any(node.memory_only and node.memory_bytes for node in topology.nodes),
        "node without memory": any(not node.memory_bytes for node in topology.nodes),
        "movable-only node": any(node.memory_bytes and not node.normal_memory for node in topology.nodes),
        "gaps in node ids": [node.id for node in topology.nodes] != list(range(len(topology.nodes))),
        "gaps in CPU ids": topology.online_cpus != frozenset(range(len(topology.online_cpus))),
        "SMT": topology.smt,
        "isolated CPUs": bool(topology.isolated_cpus),
        "offline CPUs": bool(topology.offline_cpus),
        "forbidden CPUs": bool(topology.forbidden_cpus),
        "dies": bool(topology.dies),
        "distances": bool(topology.distances),
        "performance and efficiency cores": bool(topology.cpu_kinds),
        "PMEM": any(node.kind is MemoryKind.PMEM for node in topology.nodes),
        "HBM": any(node.kind is MemoryKind.HBM for node in topology.nodes),
        "level 2 caches of several cores": any(core.cpus < l2 for l2 in topology.l2_groups for core in topology.cores),
        "several level 3 caches in a node": any(l3 < n.cpus for l3 in topology.l3_groups for n in topology.nodes),
        "a level 3 cache of several nodes": any(
            l3 > n.cpus for l3 in topology.l3_groups for n in topology.nodes if n.cpus
        ),
    }
    tally.machines_with.update(name for name, is_so in found.items() if is_so)
