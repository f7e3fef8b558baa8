"""Texts from outside, such as names and annotations of tenants, as they may stand in a line: short, and only text.

What a terminal would act on (escapes, line breaks, directions of writing, characters without a width) is written as in
the source of a program, and what is too long is cut, with a word about how much it was.
"""

from collections.abc import Mapping, Sequence
from typing import Any

MAX_CHARS = 2000
"""Of one text in a line, a table or the history: the CPUs of a large machine, every other one, fit."""
MAX_TEXTS = 16
"""Of one list of sentences."""


def printable(text: str) -> str:
    """*text* with everything that is not to be printed written as in the source of a program."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def bounded_text(text: str, limit: int = MAX_CHARS) -> str:
    """The first *limit* characters of *text*, and how many more it has."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


def bounded_texts(texts: Sequence[str], most: int = MAX_TEXTS, limit: int = MAX_CHARS) -> tuple[str, ...]:
    """The first of *texts*, each cut, and how many more there are."""
    found = tuple(bounded_text(text, limit) for text in texts[:most])
    return found if len(texts) <= most else (*found, f"and {len(texts) - most} more")


def bounded(value: Any, limit: int = MAX_CHARS) -> Any:  # noqa: ANN401 (plain data, as JSON has it)
    """Plain data with every text in it `printable`, and cut."""
    if isinstance(value, str):
        return _shown(value, limit)
    if isinstance(value, Mapping):
        return {bounded(key, limit): bounded(item, limit) for key, item in value.items()}
    return [bounded(item, limit) for item in value] if isinstance(value, list | tuple) else value


def _shown(text: str, limit: int) -> str:
    """*text*, printable and cut; in the notation of Python it is longer than it was."""
    cut, shown = text[:limit], printable(text[:limit])
    while len(shown) > limit:
        cut = cut[: max(1, len(cut) * limit // len(shown))] if len(cut) > 1 else ""
        shown = printable(cut)
    return shown if len(cut) == len(text) else f"{shown}… ({len(text) - len(cut)} more characters)"
