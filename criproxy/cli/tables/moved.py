"""The lines about containers that would move."""

from collections.abc import Iterator
from typing import Any

from criproxy.cli.render import words
from criproxy.cli.render.topology_words import count

Values = dict[str, Any]


def moved_lines(moved: list[Values], most: int) -> Iterator[str]:
    """One line for each container that would move, at most *most*, and how many more there are."""
    for each in moved[:most]:
        cpus = f"CPUs {each['from_cpus'] or 'unknown'} → {each['cpus']}"
        memory = f", memory of {each['from_mems'] or 'unknown'} → {each['mems']}"
        yield f"{words.short_title(each)}: {cpus}{memory if each['from_mems'] != each['mems'] else ''}"
    if (more := len(moved) - most) > 0:
        yield f"… and {count(more, 'more container')}"
