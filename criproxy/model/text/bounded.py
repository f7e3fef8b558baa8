"""Makes external texts, such as names and annotations of tenants, safe for output: short and printable.

Characters that affect a terminal (escapes, line breaks, bidirectional controls, zero-width characters) are escaped as
in Python source, and long texts are cut, with a note about their length.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
MAX_CHARS = 2000
"""The longest text in a line, a table or the history: enough for every other CPU of a large machine."""
MAX_TEXTS = 16
"""The longest list of sentences."""


def printable(text: str) -> str:
    """Return *text* with unprintable characters escaped as in Python source."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def bounded_text(text: str, limit: int = MAX_CHARS) -> str:
    """Return the first *limit* characters of *text*, and how many more it has."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


def bounded_texts(texts: Sequence[str], most: int = MAX_TEXTS, limit: int = MAX_CHARS) -> tuple[str, ...]:
    """Return the first of *texts*, each cut, and how many more there are."""
    found = tuple([text if len(text) <= limit else bounded_text(text, limit) for text in texts[:most]])
    return found if len(texts) <= most else (*found, f"and {len(texts) - most} more")


def in_turn(found: Iterable[T], group: Callable[[T], Hashable]) -> list[T]:
    """Return *found* with the first of each group first, then the second of each, and so on: none hides others."""
    before, places = Counter[Hashable](), list[tuple[int, T]]()
    for each in found:
        places.append((before[group(each)], each))
        before[group(each)] += 1
    return [each for _, each in sorted(places, key=lambda place: place[0])]


def bounded(value: Any, limit: int = MAX_CHARS) -> Any:  # noqa: ANN401 (plain data, as JSON has it)
    """Return plain data with every text made `printable` and cut."""
    if isinstance(value, str):
        return _shown(value, limit)
    if isinstance(value, Mapping):
        return {bounded(key, limit): bounded(item, limit) for key, item in value.items()}
    return [bounded(item, limit) for item in value] if isinstance(value, list | tuple) else value


def _shown(text: str, limit: int) -> str:
    """Return *text*, printable and cut; escapes make it longer."""
    cut, shown = text[:limit], printable(text[:limit])
    while len(shown) > limit:
        cut = cut[: max(1, len(cut) * limit // len(shown))] if len(cut) > 1 else ""
        shown = printable(cut)
    return shown if len(cut) == len(text) else f"{shown}… ({len(text) - len(cut)} more characters)"
