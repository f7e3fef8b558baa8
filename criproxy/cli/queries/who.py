"""``criproxy who``: which containers may run on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options
from criproxy.cli.options import format_option
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, QUIET, TROUBLE, indented, print_answer
from criproxy.cli.render.topology_words import count
from criproxy.model.cpuset import cpus_text


@click.command(short_help="Show which containers may run on a CPU.")
@click.argument("cpus", nargs=-1, required=True, metavar="CPU...")
@format_option
@places_options
def command(*, cpus: tuple[str, ...], output: str, **places: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Show which containers may run on each CPU, exclusively or not, and whether it is reserved, isolated or kept.

    CPU is a number or a list in kernel notation, such as 3 or 0-7,16. CPUs with identical details share one row. A
    container is also listed if it belongs on a CPU but is not there yet, or if it is still there but belongs elsewhere.
    The command asks the daemon. If no daemon answers, it reads the state that the daemon left on disk.
    """
    from criproxy.api.views.who import read_cpus

    text = ",".join(cpus)
    read_cpus(text)  # here: what is no list of CPUs is wrong with and without a daemon
    print_answer(NodeClient(**places).ask("who", {"cpus": text}), output, render)


Values = dict[str, Any]
MOST = 24
"""Containers of a row that are shown: more of them share these CPUs in the same way."""
KINDS = {
    "absent": "not on this machine",
    "offline": "offline",
    "forbidden": "not for pods: their cgroup does not include it",
    "exclusive": "exclusive",
    "shared": "shared",
    "free": "free to become exclusive",
    "reserved": "reserved",
    "isolated": "isolated by the kernel",
    "watched": "used by a container that criproxy only watches",
}


@words.renders
def render(values: Values) -> Iterator[rich.RenderableType]:
    """Render an answer to `who`."""
    yield from words.notices_of(values)
    for number, row in enumerate(values["rows"]):
        yield from (*([rich.Text()] if number or values["notices"] else []), _head(row), *_members(row))


def _head(row: Values) -> rich.Text:
    node = f", NUMA node {row['numa_node']}" if row["numa_node"] is not None else ""
    kinds = ", ".join(KINDS.get(kind, kind) for kind in row["kinds"]) or "state unknown"
    text = rich.Text(f"{cpus_text(row['cpus'])}{node}: {kinds}", style=HEADING)
    if row["kept"]:
        text.append(f", kept for {', '.join(row['kept'])}, whose containers have ended")
    return text


def _members(row: Values) -> Iterator[rich.RenderableType]:
    containers = sorted(row["containers"], key=lambda each: (not _is_moving(each), not each["exclusive"]))
    if not containers:
        if not {"absent", "offline"} & {*row["kinds"]}:
            yield rich.Text("  no container that criproxy knows may run here", style=QUIET)
        return
    table = indented(columns=3)
    for each in containers[:MOST]:
        style = TROUBLE if _is_moving(each) else ""
        table.add_row("", words.short_title(each), each["state"], _how(each), style=style)
    yield table
    if (more := len(containers) - MOST) > 0:
        yield rich.Text(f"  … and {count(more, 'more container')}; --format json lists all", style=QUIET)


def _is_moving(each: Values) -> bool:
    return not (each["desired"] and each["applied"])


def _how(each: Values) -> str:
    """How it may run on these CPUs; and where it is, or belongs, if that is elsewhere."""
    how = "exclusive" if each["exclusive"] else "not placed" if each["watched"] else "shared"
    if not each["applied"]:
        there = f"it is still on {cpus_text(each['applied_cpus'])}"
        return f"{how}, but {there if each['applied_cpus'] else 'criproxy does not know where it is'}"
    if not each["desired"]:
        return f"still here, but should be on {cpus_text(each['desired_cpus'])}"
    return how
