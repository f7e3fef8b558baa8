"""What one step of the engine costs: each policy and event on a machine of 384 CPUs, with 16, 100 and 500 containers.

Less usual containers and machines are in `unusual`, and creates with cards in `devices`.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from criproxy.config.settings import find
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    PolicyChanged,
    TopologyChanged,
    UpdateApplied,
)
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import GIB, machine
from lab.bench.bars import DEVICES_MS, MEMORY_MS, STEP_MEDIAN_MS, STEP_P99_MS, WHOLE_MS, Check

CONTAINERS = 500
FEWER = (16, 100)
"""With so many the cost is measured, too, by one repetition in `LESS`, to see how it grows."""
LESS = 5
WIDE = 25
"""One in so many measurements is of an event that concerns everybody: it has no bar."""

Make = Callable[[Node, int], Event]


@dataclass(frozen=True, slots=True)
class StepLine:
    """CPU time of one event under one policy."""

    policy: str
    event: str
    steps: int
    median_ms: float
    p99_ms: float
    has_bar: bool
    bars: tuple[float, float] = (STEP_MEDIAN_MS, STEP_P99_MS)
    """For median and p99."""
    containers: int = CONTAINERS
    """That are there."""
    linear_ms: float | None = None
    """What the median would be if it grew linearly from that with fewer containers; None where nobody has measured."""

    @property
    def checks(self) -> list[Check]:
        """The figures beside their bars; none for events that place everybody anew."""
        if not self.has_bar:
            return []
        growth = [] if self.linear_ms is None else [Check(self.median_ms, self.linear_ms)]
        return [Check(self.median_ms, self.bars[0]), Check(self.p99_ms, self.bars[1]), *growth]


def measure(repeats: int) -> list[StepLine]:
    """Every policy and event, *repeats* times each."""
    return [one for name in BUILTIN for one in _lines(name, repeats)]


def large_machine() -> Topology:
    """384 CPUs: two sockets, eight NUMA nodes, two threads a core."""
    return machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB)


def filled(policy: Policy, containers: Iterable[Container] = (), pods: Iterable[Pod] = ()) -> Node:
    """The machine with running *containers*, each of which gets its place from *policy*."""
    node = Node(large_machine(), pods={pod.key: pod for pod in pods})
    for number, container in enumerate(containers):
        runtime_id = f"id{number}"
        for event in (
            ContainerCreating(container),
            ContainerCreated(container.key, runtime_id),
            ContainerStarted(runtime_id),
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


def _resize(node: Node, number: int) -> ContainerResized:
    container = node.containers[_id(node, number)]
    milli = container.cpu_milli + (1000 if container.qos is QosClass.GUARANTEED else 50)
    return ContainerResized(container.key, Sizes(cpu_milli=milli, memory_limit_bytes=container.memory_limit_bytes))


def _applied(node: Node, number: int) -> UpdateApplied:
    return UpdateApplied(_id(node, number), Applied(frozenset({number % 384}), frozenset({0})))


EVENTS: Mapping[str, tuple[Make, bool]] = {
    "create, shares": (lambda node, n: ContainerCreating(_container(n, owner=False, key="new")), True),
    "create, owns": (lambda node, n: ContainerCreating(_container(n, owner=True, key="new")), True),
    "resize": (_resize, True),
    "started": (lambda node, n: ContainerStarted(_id(node, n)), True),
    "applied": (_applied, True),
    "exited": (lambda node, n: ContainerExited(_id(node, n)), True),
    "gone": (lambda node, n: ContainerGone(_id(node, n)), True),
    "policy changed for all": (lambda node, n: PolicyChanged(apply_all=True), False),
    "CPU offline": (lambda node, n: TopologyChanged(_without(node.topology, 2 * n % 384)), False),
}
"""Name → the event, and whether the bars hold for it: what places everybody anew is rare and may take longer."""


def _without(topology: Topology, cpu: int) -> Topology:
    return machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB, allowed=topology.cpus - {cpu})


def build(name: str, options: Mapping[str, object]) -> Policy:
    """The policy *name* with some *options*."""
    entry = find(name)
    return entry.build(entry.options.model_validate({"reservedCpus": "0-1", **options}))


def _lines(name: str, repeats: int) -> Iterator[StepLine]:
    policy = build(name, {})
    fewer: dict[str, float] = {}
    for count in (*FEWER, CONTAINERS):
        node = filled(policy, usual(count))
        for title, (make, has_bar) in EVENTS.items():
            if not has_bar and count < CONTAINERS:
                continue
            times = max(repeats // (1 if has_bar else WIDE) // (1 if count == CONTAINERS else LESS), 2)
            linear_ms = round(fewer[title] * count / FEWER[-1], 3) if has_bar and count == CONTAINERS else None
            took = times_ms(node, make, policy, times)
            found = line(name, title, took, has_bar=has_bar, containers=count, linear_ms=linear_ms)
            fewer[title] = found.median_ms
            yield found


def times_ms(node: Node, make: Make, policy: Policy, repeats: int) -> Iterator[float]:
    """The cost of one event, made *repeats* times."""
    return (time_ms(node, make(node, 7 * number), policy) for number in range(repeats))


def line(policy: str, title: str, times: Iterable[float], *, has_bar: bool = True, **more: Any) -> StepLine:  # noqa: ANN401
    """What several *times* in ms say; *more*: of the fields of a `StepLine`."""
    ordered = sorted(times)
    cuts = quantiles(ordered, n=100, method="inclusive")
    return StepLine(policy, title, len(ordered), round(cuts[49], 3), round(cuts[98], 3), has_bar, **more)


def time_ms(node: Node, event: Event, policy: Policy) -> float:
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


def show(console: Console, lines: list[StepLine]) -> None:
    """Print the table."""
    title = f"engine.step with up to {CONTAINERS} containers on {len(large_machine().cpus)} CPUs: ms of CPU time"
    median_ms = (
        f"{STEP_MEDIAN_MS} ms, memory {MEMORY_MS} ms, devices {DEVICES_MS} ms, whole creates {WHOLE_MS} ms of time"
    )
    table = Table(title=title, caption=f"bars: median {median_ms}, p99 {STEP_P99_MS} ms")
    for name in ("policy", "event"):
        table.add_column(name, no_wrap=True)
    for name in ("containers", "median", "p99", ""):
        table.add_column(name, justify="right")
    for one in lines:
        figures = f"{one.median_ms:.2f}", f"{one.p99_ms:.2f}"
        table.add_row(one.policy, one.event, str(one.containers), *figures, _verdict(one))
    console.print(table)


def _verdict(one: StepLine) -> str:
    if not one.checks:
        return "no bar"
    return "[green]ok[/]" if all(check.ok for check in one.checks) else "[bold red]over[/]"


def as_json(lines: list[StepLine]) -> list[dict[str, Any]]:
    """For the report."""
    return [{**asdict(one), "ok": all(check.ok for check in one.checks)} for one in lines]


def over(lines: list[StepLine]) -> bool:
    """Whether a bar is missed."""
    return any(not check.ok for one in lines for check in one.checks)
