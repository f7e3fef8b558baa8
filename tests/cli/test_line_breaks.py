"""Where a line has no room for a list of CPUs, it breaks after a comma and never inside of a number."""

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from criproxy.api.views.situation import Situation
from criproxy.api.views.status import rows, summary
from criproxy.cli.queries.status import render
from criproxy.cli.render.console import console
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.simulate.hosts import machine

MACHINE = machine(nodes=2, cores=64, threads=1)
ODD = frozenset(cpu for cpu in range(100, 128) if cpu % 2)
EVEN = frozenset(range(128)) - ODD
PARTS = re.compile(r"\d+-\d+|\d+")


def situation() -> Situation:
    """A node of 128 CPUs on which every other CPU of a part is owned."""
    node = Node(MACHINE, pods={"s": Pod(key="s", name="trading-engine", namespace="shop")})
    for key, cpus, exclusive in (("a" * 64, ODD, ODD), ("b" * 64, EVEN - {0}, frozenset[int]())):
        container = Container(key=key, pod="s", name=key[0], pod_name="trading-engine", namespace="shop")
        node = node.replace(
            containers={**node.containers, key: replace(container, state=ContainerState.RUNNING)},
            grants={**node.grants, key: Grant(cpus, MACHINE.mems, exclusive)},
            applied={**node.applied, key: Applied(frozenset({0, 101, 103, 105, 107, 109, 111}), MACHINE.mems)},
        )
    return Situation(node=node, policy="static")


def status(width: int) -> RenderableType:
    """What `criproxy status` shows."""
    values = {"source": "daemon", "time": "2026-01-01T00:00:00.000Z", "version": "1", "pid": 1, "omitted": 0}
    values |= {"started": "2026-01-01T00:00:00.000Z", **summary(situation())}
    return render({**values, "containers": list(rows(situation()))}, width)


def table(width: int) -> RenderableType:
    """Any table with a list of CPUs."""
    made = Table("WHO", "CPUS")
    made.add_row("somebody with a name of some length", format_cpuset(EVEN))
    return made


def text(width: int) -> RenderableType:
    """Any sentence with a list of CPUs."""
    return Text(f"container shop/trading-engine/main should be on CPUs {format_cpuset(EVEN)} and is not")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("shown", [status, table, text])
def test_no_number_is_broken(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[[int], RenderableType], width: int
) -> None:
    """Every range on the screen is one of the lists."""
    monkeypatch.setenv("COLUMNS", str(width))
    screen = console()
    screen.file = out = io.StringIO()
    screen.print(shown(width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    lists = [ODD, EVEN, EVEN - {0}, *(node.cpus & cpus for node in MACHINE.nodes for cpus in (ODD, EVEN, MACHINE.cpus))]
    known = {"0-1", "101", *(part for cpus in lists for part in PARTS.findall(format_cpuset(cpus)))}
    above = 2 if shown is status else 0  # its first lines have times and counts
    printed = {part for line in lines[above:] for part in PARTS.findall(line)}
    assert {part for part in printed if len(part) > 2} <= known
    if shown is not status and width == 80:
        assert any(line.rstrip(" │┃").endswith(",") for line in lines)


def test_lines_without_lists_are_broken_as_before() -> None:
    """Only a comma between digits is a place to break."""
    screen = Console(width=10, file=io.StringIO())
    console()
    assert [line.plain for line in Text("ab,cdefghijkl, mn").wrap(screen, 10)] == ["ab,cdefghi", "jkl, mn"]


def test_who_shares_what_is_said_only_where_it_is_true() -> None:
    """A policy with pools gives those that own none other CPUs than all."""
    out = io.StringIO()
    Console(width=1000, file=out).print(status(1000))
    cpus = format_cpuset(EVEN)
    assert f"CPUs {cpus}: not exclusive" in out.getvalue()
    assert "shared by all" not in out.getvalue()
