"""What the page shows beside the answers of commands."""

from dataclasses import replace
from typing import Any

import pytest

from criproxy.api.page import source
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.workload import Container, ContainerState
from criproxy.simulate.hosts import GIB, machine

SMALL = machine(nodes=2, cores=2, threads=2, packages=1)


def test_threads_of_a_core_are_together() -> None:
    """Sockets, NUMA nodes, caches, cores, CPUs."""
    assert source.machine(SMALL)["blocks"] == [
        {"package": 0, "numa_node": 0, "caches": [[[0, 4], [1, 5]]]},
        {"package": 0, "numa_node": 1, "caches": [[[2, 6], [3, 7]]]},
    ]


def test_memory_of_nodes() -> None:
    """Nodes with memory, and whether pods may use it."""
    found = source.machine(replace(SMALL, mems=frozenset({1})))["memory"]

    assert [(each["numa_node"], each["memory_bytes"], each["usable"]) for each in found] == [
        (0, 16 * GIB, False),
        (1, 16 * GIB, True),
    ]


def container(key: str, limit: int | None, state: ContainerState = ContainerState.RUNNING) -> Container:
    """One with a memory limit, or none."""
    return Container(key=key, pod="p", name=key, memory_limit_bytes=limit, state=state)


def test_promises_by_node() -> None:
    """Limits are added by the nodes that containers may use; one without a limit is counted, one that ended is not."""
    some = [container("a", GIB), container("b", 2 * GIB), container("c", None), container("d", GIB)]
    ended = container("e", GIB, ContainerState.EXITED)
    mems = {"a": {0}, "b": {0}, "c": {0}, "d": {0, 1}, "e": {0}}
    grants = {key: Grant(frozenset({0}), frozenset(nodes)) for key, nodes in mems.items()}
    node = Node(SMALL, containers={each.key: each for each in [*some, ended]}, grants=grants)

    assert source.promised(node) == [
        {"mems": "0", "bytes": 3 * GIB, "containers": 3, "unlimited": 1},
        {"mems": "0-1", "bytes": GIB, "containers": 1, "unlimited": 0},
    ]


def record(kind: Kind, at_s: float = 0.0, text: str = "") -> Record:
    """One of a container."""
    return Record(at_s, "key", "shop/web/main", kind, (text,) if text else (), life="key")


@pytest.mark.parametrize(
    ("records", "found"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(
            [record(Kind.GRANTED, 0.0, "shop/web/main: gets CPU 1")],
            {"since": "1970-01-01T00:00:00.000Z", "why": "gets CPU 1"},
            id="granted",
        ),
        pytest.param(
            [record(Kind.GRANTED, 0.0, "shop/web/main gets CPU 1"), record(Kind.RESIZED, 9.0, "has grown")],
            {"since": "1970-01-01T00:00:00.000Z", "why": "has grown"},
            id="resized",
        ),
        pytest.param([record(Kind.RESIZED, 9.0, "has grown")], {}, id="its-beginning-is-not-known"),
        pytest.param([record(Kind.STARTED, 9.0, "started")], {}, id="no-reason"),
    ],
)
def test_since_when_and_why(records: list[Record], found: dict[str, str]) -> None:
    """A container exists since it was granted a place, and is where it is for the last reason."""
    known: Any = {}
    for each in records:
        known = source.placing(each, known) or known

    assert known == found
