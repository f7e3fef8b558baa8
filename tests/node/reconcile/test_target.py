"""However late updates are sent, running owners are alone on their CPUs, and at rest everybody has their grant."""

from collections.abc import Iterator
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.attributes import in_place
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass, Sizes
from criproxy.node.in_flight import InFlight, StartEvent
from criproxy.node.reconcile.excess_cpus import ExcessCpus
from criproxy.placement.decision import target
from criproxy.placement.engine import step
from criproxy.placement.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerResized,
    ContainerStarted,
    Event,
    UpdateApplied,
)
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine

POLICY = StaticPolicy(StaticOptions.model_validate({"cpuQuota": "lift"}))


def steps_of(number: int) -> Iterator[Event]:
    """The life of one of four containers; the odd ones own a CPU."""
    key, runtime_id = f"r{number}", f"id{number}"
    milli = 1000 if number % 2 else 500
    qos = QosClass.GUARANTEED
    yield ContainerCreating(Container(key=key, pod="s", name=key, qos=qos, cpu_milli=milli, cpu_limit_milli=milli))
    yield from (ContainerCreated(key, runtime_id), ContainerStarted(runtime_id), ContainerExited(runtime_id))


resizes = st.tuples(st.integers(0, 3), st.sampled_from([500, 1000, 1500, 2000, 3000]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | resizes, min_size=8, max_size=30))
def test_everybody_arrives_whatever_is_resized_meanwhile(order: list[tuple[int, int] | None]) -> None:
    """Owners become sharers and back, those that run change places, and nobody waits for ever; None sends an update."""
    node = Node(machine(cores=6, threads=1))
    for number in range(4):
        for event in list(steps_of(number))[:3]:
            node = step(node, event, POLICY).node
    unsent: list[str] = []
    for resize in order:
        if resize is None:
            arrived = sent(node, unsent.pop(0)) if unsent else None
            node = step(node, arrived, POLICY).node if arrived else node
            continue
        key = f"id{resize[0]}"
        with suppress(NotEnough):
            decision = step(node, ContainerResized(key, Sizes(cpu_milli=resize[1], cpu_limit_milli=resize[1])), POLICY)
            node = decision.node
            unsent += [update.key for update in decision.updates]
    for _ in range(3 * len(node.grants)):
        for key in node.grants:
            arrived = sent(node, key)
            node = step(node, arrived, POLICY).node if arrived else node
    assert all(in_place(grant, node.applied.get(key)) for key, grant in node.grants.items())


def starting(key: str) -> InFlight:
    """The start of *key* is with the runtime."""
    in_flight = InFlight()
    in_flight.start(key, StartEvent.SEND)
    return in_flight


def sent(node: Node, key: str) -> Event | None:
    """What reaches the container *key* if it is told now what it may have."""
    to = target(node, key, ExcessCpus().of(node).others(key)) if key in node.grants else None
    if to is None:
        return None
    assert not to.lifted or to.cpus <= node.grants[key].exclusive
    return UpdateApplied(key, to)


def test_a_quota_does_not_wait_for_cpus() -> None:
    """Who may not grow yet gets its quota back at once: the CPUs that it is on are others' already."""
    both, first = frozenset({1, 2}), frozenset({1})
    container = Container(key="k", pod="s", name="c", cpu_limit_milli=1000, state=ContainerState.RUNNING)
    other = Container(key="o", pod="s", name="o", state=ContainerState.RUNNING)
    node = Node(
        machine(cores=4, threads=1),
        containers={"k": container, "o": other},
        grants={"k": Grant(both, frozenset(), quota=CpuQuota.RESTORED), "o": Grant(frozenset({3}), frozenset())},
        applied={"k": Applied(first, frozenset(), lifted=True), "o": Applied(frozenset({2}), frozenset())},
    )

    to = target(node, "k", ExcessCpus().of(node).others("k"))

    assert to == Applied(first, frozenset(), lifted=False)
