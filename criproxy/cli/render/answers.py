"""What several answers have in common on a terminal: their title and notices, and containers that would move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.console import NOTE, TROUBLE
from criproxy.cli.render.topology_words import count

Values = dict[str, Any]


def no_answer(values: Values) -> rich.Text:
    """Render the ``error`` of `repeated_output` in place of an answer."""
    return rich.Text(f"{values['error']}; trying again", style=TROUBLE)


def title_of(values: Values, more: str = "") -> rich.Text:
    """Render the source of the answer, since when it has been running, and *more*."""
    if values["source"] != "daemon":
        return rich.Text("criproxy: the daemon does not answer", style=TROUBLE)
    up = words.ago(values["started"])
    host = f" on {values['host']}" if values.get("host") else ""  # missing in answers of earlier versions
    return rich.Text(
        f"criproxy {values['version']}{host}, process {values['pid']}, up {up}{more}; {values['time'][:19]}Z"
    )


def notices_of(values: Values) -> Iterator[rich.Text]:
    """Render the notices about the node."""
    for notice in values["notices"]:
        if notice["wrong"]:
            yield rich.Text(f"WRONG: {notice['text']}", style=TROUBLE)
        else:
            yield rich.Text(f"Note: {notice['text']}", style=NOTE)


def moved_lines(moved: list[Values], most: int) -> Iterator[str]:
    """One line for each container that would move, at most *most*, and how many more there are."""
    for each in moved[:most]:
        cpus = f"CPUs {each['from_cpus'] or 'unknown'} → {each['cpus']}"
        memory = f", memory of {each['from_mems'] or 'unknown'} → {each['mems']}"
        yield f"{words.short_title(each)}: {cpus}{memory if each['from_mems'] != each['mems'] else ''}"
    if (more := len(moved) - most) > 0:
        yield f"… and {count(more, 'more container')}"
