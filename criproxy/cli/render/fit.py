"""`criproxy fit` on a terminal: yes or no first, then where and why."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.answers import notices_of
from criproxy.cli.render.candidates import render_choices
from criproxy.cli.render.console import HEADING, TROUBLE
from criproxy.cli.render.topology_words import count
from criproxy.model.bounded import bounded

Values = dict[str, Any]
MOST_MOVED = 24
"""Containers that would move that are listed; on a large node most of them only give up a few shared CPUs."""


def render(values: Values) -> RenderableType:
    """An answer of the control socket's `fit`."""
    values = bounded(values)
    parts: list[RenderableType] = [*notices_of(values), _answer(values)]
    parts += _section("Why it would run there", values["why"])
    parts += _section("Containers that would move", [*_moved(values["moved"])])
    if values["choice"]:
        parts += render_choices([values["choice"]])
    return Group(*parts)


def _answer(values: Values) -> Text:
    if not values["fits"]:
        return Text(f"It does not fit: {values['refusal']}", style=TROUBLE)
    if not values["placed"]:
        return Text("It fits: the policy leaves it alone, and it may run on all CPUs that are not exclusive")
    owned = values["exclusive_cpus"]
    how = "exclusive" if owned == values["cpus"] else f"of which {owned} are exclusive" if owned else "shared"
    pool = f", pool {values['pool']}" if values["pool"] else ""
    memory = f", memory of {_nodes(values['mems'])}" if values["mems"] else ""
    on = f" on {_nodes(values['numa_nodes'])}" if values["numa_nodes"] else ""
    return Text(f"It fits: {words.cpus(values['cpus'])}{on}, {how}{memory}{pool}")


def _nodes(text: str) -> str:
    return f"NUMA node {text}" if text.isdigit() else f"NUMA nodes {text}"


def _moved(moved: list[Values]) -> Iterator[str]:
    for each in moved[:MOST_MOVED]:
        cpus = f"CPUs {each['from_cpus'] or 'unknown'} → {each['cpus']}"
        memory = f", memory of {each['from_mems'] or 'unknown'} → {each['mems']}"
        yield f"{words.short_title(each)}: {cpus}{memory if each['from_mems'] != each['mems'] else ''}"
    if (more := len(moved) - MOST_MOVED) > 0:
        yield f"… and {count(more, 'more container')}"


def _section(title: str, lines: list[str]) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(), Text(title, style=HEADING), *(Text(f"  {line}") for line in lines)]
