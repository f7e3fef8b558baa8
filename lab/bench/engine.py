"""What one step of the engine costs: each policy and event on a machine of 384 CPUs, with 16, 100 and 500 containers.

Less usual containers and machines are in `unusual`, and creates with cards in `devices`.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import quantiles

from criproxy.config.settings import find
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.placement import events
from criproxy.placement.engine import step
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import GIB, machine
from lab.bench.bars import STEP_MEDIAN_MS, STEP_P99_MS
from lab.figures import Figure

CONTAINERS = 500
FEWER = (16, 100)
"""With so many the cost is measured, too, by one repetition in `LESS`, to see how it grows."""
LESS = 5
WIDE = 25
"""One in so many measurements is of an event that concerns everybody: it has no bar."""

Make = Callable[[Node, int], events.Event]
Bars = tuple[float | None, float | None]
"""Of the median and of the p99."""
BARS: Bars = (STEP_MEDIAN_MS, STEP_P99_MS)
NO_BARS: Bars = (None, None)


def measure(repeats: int) -> list[Figure]:
    """Every policy and event, *repeats* times each."""
    return [one for name in BUILTIN for one in _figures(name, repeats)]


def large_machine() -> Topology:
    """384 CPUs: two sockets, eight NUMA nodes, two threads a core."""
    return machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB)


def filled(policy: Policy, containers: Iterable[Container] = (), pods: Iterable[Pod] = ()) -> Node:
    """The machine with running *containers*, each of which gets its place from *policy*."""
    node = Node(large_machine(), pods={pod.key: pod for pod in pods})
    for number, container in enumerate(containers):
        runtime_id = f"id{number}"
        for event in (
            events.ContainerCreating(container),
            events.ContainerCreated(container.key, runtime_id),
            events.ContainerStarted(runtime_id),
        ):
            node = step(node, event, policy).node
    return node


def usual(count: int) -> list[Container]:
    """Containers of which one in eight owns CPUs."""
    return [_container(number, owner=number % 8 == 0) for number in range(count)]


def _container(number: int, *, owner: bool, key: str = "") -> Container:
    return Container(
        key=key or f"r{number}",
        pod=f"s{number // 2}",
        name=key or f"c{number}",
        namespace="default",
        qos=QosClass.GUARANTEED if owner else QosClass.BURSTABLE,
        cpu_milli=2000 if owner else 100,
        cpu_limit_milli=2000 if owner else None,
        memory_limit_bytes=GIB // 4,
    )


def _id(node: Node, number: int) -> str:
    return f"id{number % len(node.containers)}"


def _resize(node: Node, number: int) -> events.ContainerResized:
    container = node.containers[_id(node, number)]
    milli = container.cpu_milli + (1000 if container.qos is QosClass.GUARANTEED else 50)
    return events.ContainerResized(
        container.key, Sizes(cpu_milli=milli, memory_limit_bytes=container.memory_limit_bytes)
    )


def _applied(node: Node, number: int) -> events.UpdateApplied:
    return events.UpdateApplied(_id(node, number), Applied(frozenset({number % 384}), frozenset({0})))


EVENTS: Mapping[str, tuple[Make, bool]] = {
    "create, shares": (lambda node, n: events.ContainerCreating(_container(n, owner=False, key="new")), True),
    "create, owns": (lambda node, n: events.ContainerCreating(_container(n, owner=True, key="new")), True),
    "resize": (_resize, True),
    "started": (lambda node, n: events.ContainerStarted(_id(node, n)), True),
    "applied": (_applied, True),
    "exited": (lambda node, n: events.ContainerExited(_id(node, n)), True),
    "gone": (lambda node, n: events.ContainerGone(_id(node, n)), True),
    "policy changed for all": (lambda node, n: events.PolicyChanged(apply_all=True), False),
    "CPU offline": (lambda node, n: events.TopologyChanged(_without(node.topology, 2 * n % 384)), False),
}
"""Name → the event, and whether the bars hold for it: what places everybody anew is rare and may take longer."""


def _without(topology: Topology, cpu: int) -> Topology:
    return machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB, allowed=topology.cpus - {cpu})


def build(name: str, options: Mapping[str, object]) -> Policy:
    """The policy *name* with some *options*."""
    entry = find(name)
    return entry.build(entry.options.model_validate({"reservedCpus": "0-1", **options}))


def _figures(name: str, repeats: int) -> Iterator[Figure]:
    policy = build(name, {})
    fewer: dict[str, float] = {}
    for count in (*FEWER, CONTAINERS):
        node = filled(policy, usual(count))
        for title, (make, has_bar) in EVENTS.items():
            if not has_bar and count < CONTAINERS:
                continue
            times = max(repeats // (1 if has_bar else WIDE) // (1 if count == CONTAINERS else LESS), 2)
            bars = BARS if has_bar else NO_BARS
            if has_bar and count == CONTAINERS:  # it may grow linearly
                bars = min(STEP_MEDIAN_MS, fewer[title] * count / FEWER[-1]), STEP_P99_MS
            found = figures(name, f"{title}, {count} containers", times_ms(node, make, policy, times), bars)
            fewer[title] = found[0].value
            yield from found


def times_ms(node: Node, make: Make, policy: Policy, repeats: int) -> Iterator[float]:
    """The cost of one event, made *repeats* times."""
    return (time_ms(node, make(node, 7 * number), policy) for number in range(repeats))


def figures(way: str, what: str, times: Iterable[float], bars: Bars = BARS) -> list[Figure]:
    """What several *times* in ms say, beside the *bars* of median and p99."""
    cuts = quantiles(sorted(times), n=100, method="inclusive")
    pairs = zip(("median", "p99"), (cuts[49], cuts[98]), bars, strict=True)
    return [Figure(what, way, name, round(value, 3), "ms", limit) for name, value, limit in pairs]


def time_ms(node: Node, event: events.Event, policy: Policy) -> float:
    """CPU time of one step."""
    fresh = node.replace()  # a node of its own: nothing that an earlier step worked out is there already
    return cpu_ms(lambda: step(fresh, event, policy))


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU time of *work* in this thread."""
    gc.disable()
    began_ns = time.thread_time_ns()
    work()
    took_ns = time.thread_time_ns() - began_ns
    gc.enable()
    return took_ns / 1e6
