"""`criproxy who` on a terminal: a paragraph for each row of CPUs."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, QUIET, TROUBLE
from criproxy.cli.render.topology_words import count
from criproxy.cli.tables.answers import notices_of
from criproxy.model.cpuset import cpus_text
from criproxy.model.text.bounded import bounded

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


def render(values: Values) -> RenderableType:
    """Render an answer to `who`."""
    values = bounded(values)
    parts: list[RenderableType] = [*notices_of(values)]
    for number, row in enumerate(values["rows"]):
        parts += [*([Text()] if number or parts else []), _head(row), *_members(row)]
    return Group(*parts)


def _head(row: Values) -> Text:
    node = f", NUMA node {row['numa_node']}" if row["numa_node"] is not None else ""
    kinds = ", ".join(KINDS.get(kind, kind) for kind in row["kinds"]) or "state unknown"
    text = Text(f"{cpus_text(row['cpus'])}{node}: {kinds}", style=HEADING)
    if row["kept"]:
        text.append(f", kept for {', '.join(row['kept'])}, whose containers have ended")
    return text


def _members(row: Values) -> Iterator[RenderableType]:
    containers = sorted(row["containers"], key=lambda each: (not _is_moving(each), not each["exclusive"]))
    if not containers:
        if not {"absent", "offline"} & {*row["kinds"]}:
            yield Text("  no container that criproxy knows may run here", style=QUIET)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(width=0)
    for _ in range(3):
        table.add_column(overflow="fold")
    for each in containers[:MOST]:
        style = TROUBLE if _is_moving(each) else ""
        table.add_row("", words.short_title(each), each["state"], _how(each), style=style)
    yield table
    if (more := len(containers) - MOST) > 0:
        yield Text(f"  … and {count(more, 'more container')}; --format json lists all", style=QUIET)


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
