"""What memory costs within a step: 500 containers with limits on 8 NUMA nodes, with room and without."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import quantiles

from criproxy.model.entries import with_entries, without
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.memory.memory import place_memory, return_memory
from criproxy.simulate.hosts import GIB, machine
from lab.bench.bars import MEMORY_MS, STEP_P99_MS
from lab.bench.engine import StepLine

REQUESTS = 500
NODES = 8
NODE_GIB = 128
ROOMY_MIB, FULL_MIB = 256, 2700
"""Limits: of the larger ones, 500 are more than the machine has."""
QOS = tuple(QosClass)
_PLACE = Grant(frozenset({0}), frozenset())


def measure(repeats: int) -> Iterator[StepLine]:
    """Who comes and who goes, where memory suffices and where others have to make room."""
    for name, mib in (("roomy", ROOMY_MIB), ("full", FULL_MIB)):
        node = _filled(mib)
        steps: Mapping[str, Callable[[int], None]] = {"comes": _coming(node, mib), "goes": _going(node)}
        for verb, step in steps.items():
            times_ms = sorted(_time_ms(step, 7 * number) for number in range(repeats))
            cuts = quantiles(times_ms, n=100, method="inclusive")
            bars = MEMORY_MS, STEP_P99_MS
            yield StepLine("memory", f"{verb}, {name}", repeats, round(cuts[49], 3), round(cuts[98], 3), True, bars)


def _filled(mib: int) -> Node:
    node = Node(machine(nodes=NODES, cores=24, threads=2, packages=2, memory_bytes=NODE_GIB * GIB))
    for number in range(REQUESTS):
        node = _come(node, _container(number, mib), number)
    return node


def _come(node: Node, container: Container, number: int) -> Node:
    """The node with one more container, whose CPUs are near one of its NUMA nodes."""
    known = node.replace(containers=with_entries(node.containers, {container.key: container}))
    grants = with_entries(node.grants, {container.key: _PLACE})
    return known.replace(grants=place_memory(known, grants, container, frozenset({number % NODES})).grants)


def _container(number: int, mib: int, key: str = "") -> Container:
    name = key or f"c{number}"
    return Container(key=name, pod="s", name=name, qos=QOS[number % len(QOS)], memory_limit_bytes=mib << 20)


def _coming(node: Node, mib: int) -> Callable[[int], None]:
    def come(number: int) -> None:
        _come(node, _container(number, mib, "new"), number)

    return come


def _going(node: Node) -> Callable[[int], None]:
    def go(number: int) -> None:
        key = (f"c{number % REQUESTS}",)
        after = node.replace(containers=without(node.containers, key), grants=without(node.grants, key))
        return_memory(after, after.grants)

    return go


def _time_ms(step: Callable[[int], None], number: int) -> float:
    gc.disable()
    try:
        began_ns = time.thread_time_ns()
        step(number)
        return (time.thread_time_ns() - began_ns) / 1e6
    finally:
        gc.enable()
