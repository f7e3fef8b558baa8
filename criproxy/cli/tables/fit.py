"""`criproxy fit` on a terminal: yes or no first, then where and why."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from criproxy.cli.render.console import HEADING, NOTE, TROUBLE
from criproxy.cli.tables.answers import notices_of
from criproxy.cli.tables.candidates import render_choices
from criproxy.cli.tables.moved import moved_lines
from criproxy.model.cpuset import cpus_text
from criproxy.model.text.bounded import bounded

Values = dict[str, Any]
MOST_MOVED = 24
"""Containers that would move that are listed; on a large node most of them only give up a few shared CPUs."""


def render(values: Values | None, found: Sequence[Values] = ()) -> RenderableType:
    """Render the whole answer first, and the details after it.

    Args:
        values: an answer of the control socket's `fit`; None: nobody asked about CPUs.
        found: answers of `cards_of_container`.
    """
    cards = [render_cards(each) for each in sorted(found, key=lambda each: bool(each["fits"]))]
    if values is None:
        return Group(*cards)
    values = bounded(values)
    parts: list[RenderableType] = [*notices_of(values)]
    if values["fits"] and (lacking := [each for each in found if not each["fits"]]):
        parts += [
            Text(_without_cards(lacking), style=TROUBLE),
            *cards,
            _answer(values, "Without the cards, it would fit"),
        ]
    else:
        parts += [_answer(values), *cards]
    parts += [Text(f"Note: {text}", style=NOTE) for text in values.get("assumed", ())]
    parts += _section("Why it would run there", values["why"])
    parts += _section("Containers that would move", [*moved_lines(values["moved"], MOST_MOVED)])
    if values["choice"]:
        parts += render_choices([values["choice"]])
    return Group(*parts)


def _without_cards(lacking: Sequence[Values]) -> str:
    """Return why a pod that would fit on the CPUs does not get its cards."""
    if refused := next((each["refused"] for each in lacking if each["refused"]), ""):
        return f"It does not fit: {refused}"
    is_known = any(each["free"] is not None for each in lacking)
    return "It does not fit: too few cards are free" if is_known else "It is unknown whether it fits"


def _answer(values: Values, fits: str = "It fits") -> Text:
    if not values["fits"]:
        return Text(f"It does not fit: {values['refusal']}", style=TROUBLE)
    if not values["placed"]:
        return Text(f"{fits}: the policy leaves it alone, and it may run on all CPUs that are not exclusive")
    owned = values["exclusive_cpus"]
    how = "exclusive" if owned == values["cpus"] else f"of which {owned} are exclusive" if owned else "shared"
    pool = f", pool {values['pool']}" if values["pool"] else ""
    memory = f", memory of {_nodes(values['mems'])}" if values["mems"] else ""
    on = f" on {_nodes(values['numa_nodes'])}" if values["numa_nodes"] else ""
    return Text(f"{fits}: {cpus_text(values['cpus'])}{on}, {how}{memory}{pool}")


def _nodes(text: str) -> str:
    return f"NUMA node {text}" if text.isdigit() else f"NUMA nodes {text}"


def _section(title: str, lines: list[str]) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(), Text(title, style=HEADING), *(Text(f"  {line}") for line in lines)]


def render_cards(values: Values) -> Text:
    """One of the answers of `cards_of_container`."""
    values = bounded(values)
    asked = f"{values['wanted']} {values['resource']}"
    fit, do = ("fits", "does") if values["wanted"] == 1 else ("fit", "do")
    if values["refused"]:
        return Text(f"{asked} {do} not fit: {values['refused']}", style=TROUBLE)
    if values["free"] is None:
        return Text(f"It is unknown whether {asked} {fit}: {values['unknown']}", style=TROUBLE)
    listed = ", ".join(f"{_where(each['numa_node'])}: {each['free']}" for each in values["free_by_numa_node"])
    free = f"{values['free']} free" + (f" ({listed})" if listed else "")
    if not values["fits"]:
        return Text(f"{asked} {do} not fit: {free}", style=TROUBLE)
    nodes = ",".join(map(str, values["numa_nodes_with_room"]))
    whole = f"; enough on {_nodes(nodes)}" if nodes else ""
    return Text(f"{asked} {fit}: {free}{whole}")


def _where(node: int | None) -> str:
    return "unknown NUMA node" if node is None else f"NUMA node {node}"
