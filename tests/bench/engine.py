"""What one step of the engine costs: each policy and event on a full machine of 384 CPUs with 500 containers.

How that grows with containers is in `steps`.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from criproxy.config.registry import find
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
    UpdateApplied,
)
from criproxy.engine.step import step
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.policy import BUILTIN
from criproxy.policy.api import Policy
from criproxy.sim.machines import GIB, machine
from tests.bench.bars import MEMORY_MS, STEP_MEDIAN_MS, STEP_P99_MS, Check

CONTAINERS = 500
OWNERS = 60
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

    @property
    def checks(self) -> list[Check]:
        """The figures beside their bars; none for events that place everybody anew."""
        return [Check(self.median_ms, self.bars[0]), Check(self.p99_ms, self.bars[1])] if self.has_bar else []


def measure(repeats: int, policies: tuple[str, ...] = tuple(BUILTIN)) -> list[StepLine]:
    """Every policy and event, *repeats* times each."""
    return [line for name in policies for line in _lines(name, repeats)]


def large_machine() -> Topology:
    """384 CPUs: two sockets, eight NUMA nodes, two threads a core."""
    return machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB)


def filled(policy: Policy) -> Node:
    """The machine with its containers, most of them running, one in eight owning CPUs."""
    node = Node(large_machine())
    for number in range(CONTAINERS):
        container = _container(number, owner=number * OWNERS % CONTAINERS < OWNERS)
        runtime_id = f"id{number}"
        for event in (
            ContainerCreating(container),
            ContainerCreated(container.key, runtime_id),
            ContainerStarted(runtime_id),
        ):
            node = step(node, event, policy).node
    return node


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


def _resize(node: Node, number: int) -> ContainerResized:
    container = node.containers[f"id{number % CONTAINERS}"]
    milli = container.cpu_milli + (1000 if container.qos is QosClass.GUARANTEED else 50)
    return ContainerResized(container.key, Sizes(cpu_milli=milli, memory_limit_bytes=container.memory_limit_bytes))


def _applied(node: Node, number: int) -> UpdateApplied:
    return UpdateApplied(f"id{number % CONTAINERS}", frozenset({number % 384}), frozenset({0}))


EVENTS: Mapping[str, tuple[Make, bool]] = {
    "create, shares": (lambda node, n: ContainerCreating(_container(n, owner=False, key="new")), True),
    "create, owns": (lambda node, n: ContainerCreating(_container(n, owner=True, key="new")), True),
    "resize": (_resize, True),
    "started": (lambda node, n: ContainerStarted(f"id{n % CONTAINERS}"), True),
    "applied": (_applied, True),
    "exited": (lambda node, n: ContainerExited(f"id{n % CONTAINERS}"), True),
    "gone": (lambda node, n: ContainerGone(f"id{n % CONTAINERS}"), True),
    "policy changed for all": (lambda node, n: PolicyChanged(apply_all=True), False),
    "CPU offline": (lambda node, n: TopologyChanged(_without(node.topology, 2 * n % 384)), False),
}
"""Name → the event, and whether the bars hold for it: what places everybody anew is rare and may take longer."""


def _without(topology: Topology, cpu: int) -> Topology:
    return machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB, allowed=topology.cpus - {cpu})


def _lines(name: str, repeats: int) -> Iterator[StepLine]:
    entry = find(name)
    policy = entry.build(entry.options.model_validate({"reservedCpus": "0-1"}))
    node = filled(policy)
    for title, (make, has_bar) in EVENTS.items():
        count = repeats if has_bar else max(repeats // WIDE, 2)
        times_ms = sorted(_time_ms(node, make(node, 7 * number), policy) for number in range(count))
        cuts = quantiles(times_ms, n=100, method="inclusive")
        yield StepLine(name, title, count, round(cuts[49], 3), round(cuts[98], 3), has_bar)


def _time_ms(node: Node, event: Event, policy: Policy) -> float:
    fresh = node.replace()  # a node of its own: nothing that an earlier step worked out is there already
    gc.disable()
    try:
        began_ns = time.thread_time_ns()
        step(fresh, event, policy)
        return (time.thread_time_ns() - began_ns) / 1e6
    finally:
        gc.enable()


def show(console: Console, lines: list[StepLine]) -> None:
    """Print the table."""
    title = f"engine.step with {CONTAINERS} containers on {len(large_machine().cpus)} CPUs: ms of CPU time"
    table = Table(title=title, caption=f"bars: median {STEP_MEDIAN_MS} ms, memory {MEMORY_MS} ms, p99 {STEP_P99_MS} ms")
    for name in ("policy", "event"):
        table.add_column(name, no_wrap=True)
    for name in ("median", "p99", ""):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(line.policy, line.event, f"{line.median_ms:.2f}", f"{line.p99_ms:.2f}", _verdict(line))
    console.print(table)


def _verdict(line: StepLine) -> str:
    if not line.checks:
        return "no bar"
    return "[green]ok[/]" if all(check.ok for check in line.checks) else "[bold red]over[/]"


def as_json(lines: list[StepLine]) -> list[dict[str, Any]]:
    """For the report."""
    return [{**asdict(line), "ok": all(check.ok for check in line.checks)} for line in lines]


def over(lines: list[StepLine]) -> bool:
    """Whether a bar is missed."""
    return any(not check.ok for line in lines for check in line.checks)
