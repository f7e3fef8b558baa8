"""One random case: a machine, a policy file's options, what happens, and whether all that must be true is."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args, get_origin

from hypothesis import strategies as st

from criproxy.config.registry import find
from criproxy.engine.decision import Decision
from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    PolicyChanged,
    TopologyChanged,
)
from criproxy.engine.explained import explanation_is_true
from criproxy.engine.invariants import (
    departure_undoes_arrival,
    memory_is_promised_once,
    memory_stays,
    release_gives_back,
    step_is_deterministic,
    violations,
)
from criproxy.engine.step import step
from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, QosClass
from criproxy.policy import Entry
from criproxy.policy.api import Policy
from criproxy.policy.balloons import BalloonsOptions
from criproxy.policy.options import Options
from criproxy.sim.machines import GIB
from tests.engine.lives import PODS, containers, cpu_sizes, events, found, sizes
from tests.properties.balloons import balloon_options
from tests.properties.machines import machines, narrowed
from tests.properties.shapes import shape_of
from tests.properties.wishes import annotated

CONTAINERS = 10
"""That may come in one life."""

limits = st.sampled_from([None, GIB // 2, 7 * GIB, 9 * GIB, 14 * GIB])
"""Memory: two of the larger ones are too much for any NUMA node."""

Build = Callable[[str], Policy]
"""Makes a policy of a name, with the options of the case."""


@dataclass(frozen=True, slots=True)
class Case:
    """What happens on one machine."""

    topology: Topology
    reserved: CpuSet
    options: Mapping[str, Mapping[str, object]]
    """By policy, then by name as in a policy file."""
    life: Sequence[Event]
    policies: Sequence[str]
    """Those that a `PolicyChanged` goes on with, one after the other."""
    newcomer: Container


@dataclass(slots=True)
class Tally:
    """What was tried, to see that it was something."""

    events: Counter[str] = field(default_factory=Counter)
    numa_nodes: Counter[int] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    owners: int = 0
    """Lives in which somebody owned a CPU."""
    most: int = 0
    """Containers that had a place at the same time."""


MORE: Mapping[type[Options], Callable[[Topology], st.SearchStrategy[dict[str, object]]]] = {
    BalloonsOptions: balloon_options,
}
"""Further options of policies that have others than switches, by the class of their options."""


def options_of(entry: Entry, topology: Topology, draw: st.DrawFn) -> dict[str, object]:
    """Options for a policy: switches and words at random, sets of CPUs from the machine, all else as by default."""
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


def _arrival(number: int) -> st.SearchStrategy[Event]:
    """A container comes; half of them are Guaranteed."""
    return st.builds(
        ContainerCreating,
        st.builds(
            Container,
            key=st.just(f"r{number}"),
            pod=st.sampled_from(PODS),
            name=st.just(f"c{number}"),
            namespace=st.sampled_from(["", "kube-system"]),
            qos=st.sampled_from([QosClass.GUARANTEED, QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT]),
            cpu_milli=cpu_sizes,
            cpu_limit_milli=st.none() | cpu_sizes,
            memory_limit_bytes=limits,
            hints=st.lists(st.frozensets(st.integers(0, 3), min_size=1), max_size=2).map(tuple),
        ),
    )


def _progress(number: int) -> st.SearchStrategy[Event]:
    """What may become of a container in the course of its life."""
    runtime_id = f"id-r{number}"
    made: list[Event] = [ContainerCreated(f"r{number}", runtime_id), ContainerStarted(runtime_id)]
    ended: list[Event] = [ContainerExited(runtime_id), ContainerGone(runtime_id)]
    resized = st.builds(ContainerResized, st.sampled_from([f"r{number}", runtime_id]), sizes)
    return st.one_of(st.sampled_from(made), st.sampled_from(made), resized, st.sampled_from(ended))


def _happenings(topology: Topology) -> st.SearchStrategy[Event]:
    numbers = st.integers(0, CONTAINERS - 1)
    changes = st.builds(PolicyChanged, st.booleans()) | st.builds(TopologyChanged, narrowed(topology))
    arrival, progress = numbers.flatmap(_arrival), numbers.flatmap(_progress)
    return st.one_of(arrival, arrival, arrival, progress, progress, progress, events, changes, found)


@st.composite
def cases(draw: st.DrawFn, names: Sequence[str]) -> Case:
    """A case for the policies *names*, each of which may be changed for another of them."""
    topology = draw(machines())
    reserved = draw(st.frozensets(st.sampled_from(sorted(topology.online_cpus)), max_size=2))
    options = {name: options_of(find(name), topology, draw) for name in names}
    life: list[Event] = [*(draw(annotated(PODS)) if draw(st.booleans()) else ())]
    life += draw(st.lists(_happenings(topology), min_size=8, max_size=30))
    changes = sum(isinstance(event, PolicyChanged) for event in life)
    policies = [draw(st.sampled_from(names)) for _ in range(changes)]
    newcomer = replace(draw(containers), key="newcomer", name="newcomer")
    return Case(topology, reserved, options, life, policies, newcomer)


def live(case: Case, name: str, tally: Tally, build: Build) -> Iterator[str]:
    """Run the case from the policy *name* on; a sentence for all that is wrong."""
    node, policy, next_policies = Node(case.topology), build(name), list(case.policies)
    used: set[str] = set()
    owned = False
    _count_machine(case.topology, tally)
    for event in case.life:
        if isinstance(event, PolicyChanged):
            policy = build(next_policies.pop(0))
        if isinstance(event, ContainerCreating):
            if event.container.key in used:
                continue
            used.add(event.container.key)
        tally.events[type(event).__name__] += 1
        yield from explanation_is_true(node, event, policy)
        decision = _stepped(node, event, policy)
        if decision is None:
            tally.refusals += 1
            continue
        yield from step_is_deterministic(node, event, policy)
        if isinstance(event, PolicyChanged):
            yield from memory_stays(node, decision.node)
        if _promises_memory(node, event):
            yield from memory_is_promised_once(_seen(node, policy), _seen(decision.node, policy))
        node = decision.node
        yield from violations(node, case.reserved)
        owned, tally.most = owned or bool(node.exclusive_cpus), max(tally.most, len(node.grants))
    tally.owners += owned
    for key in node.grants:
        yield from release_gives_back(node, key, policy)
    yield from departure_undoes_arrival(node, case.newcomer, policy)


def _promises_memory(node: Node, event: Event) -> bool:
    """Whether nobody may be promised too much after *event*: somebody came, went, or has another size."""
    if isinstance(event, ContainerResized):  # who is left where it is may grow there
        had = node.grants.get(event.key)
        return had is not None and bool(had.mems)
    return isinstance(event, ContainerCreating | ContainerExited | ContainerGone)


def _seen(node: Node, policy: Policy) -> Node:
    """The part of the machine that the policy uses."""
    options = getattr(policy, "options", None)
    return options.within(node) if isinstance(options, Options) else node


def _stepped(node: Node, event: Event, policy: Policy) -> Decision | None:
    try:
        return step(node, event, policy)
    except Refused:
        return None


def _count_machine(topology: Topology, tally: Tally) -> None:
    tally.numa_nodes[len(topology.nodes)] += 1
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
    }
    tally.features.update(name for name, is_so in found.items() if is_so)
