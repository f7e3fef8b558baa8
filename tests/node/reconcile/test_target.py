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
from criproxy.node.reconcile.excess_cpus import ExcessCpus, blockers_of
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
UPDATE = 4


def steps_of(number: int) -> Iterator[Event]:
    """The life of one of four containers; the odd ones own a CPU."""
    key, runtime_id = f"r{number}", f"id{number}"
    milli = 1000 if number % 2 else 500
    qos = QosClass.GUARANTEED
    yield ContainerCreating(Container(key=key, pod="s", name=key, qos=qos, cpu_milli=milli, cpu_limit_milli=milli))
    yield from (ContainerCreated(key, runtime_id), ContainerStarted(runtime_id), ContainerExited(runtime_id))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, UPDATE), min_size=8, max_size=30))
def test_no_cpu_has_two_users_at_any_moment(order: list[int]) -> None:
    """In *order*, 0 to 3 are the next step of that container, and 4 lets the oldest update reach its container."""
    node = Node(machine(cores=4, threads=1))
    lives = [list(steps_of(number)) for number in range(4)]
    unsent: list[str] = []
    for number in order:
        event = sent(node, unsent.pop(0)) if number == UPDATE and unsent else None
        if number < UPDATE and lives[number] and may_happen(node, lives[number][0]):
            event = lives[number].pop(0)
        if event:
            decision = step(node, event, POLICY)
            node = decision.node
            unsent += [update.key for update in decision.updates]
            assert_alone(node)
    assert_settles(node)


resizes = st.tuples(st.integers(0, 3), st.sampled_from([500, 1000, 1500, 2000, 3000]))


@settings(max_examples=300, deadline=None)
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


def may_happen(node: Node, event: Event) -> bool:
    """A start is held while others are in the way or the container is not where it belongs; all else happens."""
    if not isinstance(event, ContainerStarted):
        return True
    over = ExcessCpus(starting(event.key)).of(node)
    return event.key not in over.by_key and not blockers_of(node, event.key, over)


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


def assert_alone(node: Node) -> None:
    """No running container is on a CPU that another running container owns and has."""
    running = {k: a.cpus for k, a in node.applied.items() if node.containers[k].state is ContainerState.RUNNING}
    for key, cpus in running.items():
        own = node.grants[key].exclusive & cpus
        assert all(own.isdisjoint(others) for other, others in running.items() if other != key)


def assert_settles(node: Node) -> None:
    """Once all updates are through, everybody has what was granted."""
    for _ in range(2 * len(node.grants)):
        for key in node.grants:
            if event := sent(node, key):
                node = step(node, event, POLICY).node
                assert_alone(node)
    assert all(in_place(grant, node.applied.get(key)) for key, grant in node.grants.items())


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
