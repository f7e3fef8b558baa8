"""`criproxy reload --dry-run` on a terminal: whether the file could come into effect, and for whom it has no place."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import HEADING, TROUBLE
from criproxy.cli.render.topology_words import count
from criproxy.cli.tables.moved import moved_lines
from criproxy.model.text.bounded import bounded

Values = dict[str, Any]
MOST = 100
"""Containers of one kind that are listed."""


def render(values: Values) -> RenderableType:
    """An answer of the control socket's `reload-dry-run`."""
    values = bounded(values)
    if not values["accepted"]:
        head = f"{values['file']} would be rejected, and nothing would change:"
        return Group(Text(head, style=TROUBLE), *(Text(f"  {line}") for line in values["mistakes"][:MOST]))
    parts: list[RenderableType] = [Text(_head(values))]
    parts += _section("What else would change", values["changes"])
    parts += _section("Containers that would move", [*moved_lines(values["moved"], MOST)])
    title = "Containers without a place, which would share CPUs"
    if values["apply"] == "new":
        title = "Containers that keep running, but would be refused when they are created again"
    parts += _section(title, [*_refused(values["refused"])], TROUBLE)
    return Group(*parts)


def _head(values: Values) -> str:
    what = f"{values['file']} (hash {values['hash']}, policy {values['policy']}, apply: {values['apply']})"
    if values["same"]:
        return f"{what} is equivalent to the configuration in effect: nothing would change."
    moved, refused = count(len(values["moved"]), "container"), count(len(values["refused"]), "container")
    released = " This would also end the release of the node." if values["ends_release"] else ""
    return f"{what} would come into effect: {moved} would move, and {refused} would have no place.{released}"


def _refused(refused: list[Values]) -> Iterator[str]:
    for each in refused[:MOST]:
        yield f"{words.short_title(each)}: {each['text']}"
    if (more := len(refused) - MOST) > 0:
        yield f"… and {count(more, 'more container')}"


def _section(title: str, lines: list[str], style: str = HEADING) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(), Text(title, style=style), *(Text(f"  {line}") for line in lines)]
