"""One thing that is wrong with a policy file, as people read it."""

from dataclasses import dataclass
from pathlib import Path

MAX_TEXT = 400
"""Characters of one sentence: it may quote what the file says, and that may be a megabyte."""
MAX_MISTAKES = 50
"""Told at once; who has more begins with these."""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """What is wrong where; line and column count from 1, and are 0 where the file as a whole is meant."""

    line: int
    column: int
    text: str

    @property
    def sentence(self) -> str:
        """The text, on one line and of bounded length whatever it quotes."""
        text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in self.text[: 2 * MAX_TEXT])
        return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"

    def located(self, file: Path) -> str:
        """``file:line:column: sentence``, the form that editors jump to."""
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{file}{place}: {self.sentence}"


def told(mistakes: list[Mistake]) -> list[Mistake]:
    """What to tell of *mistakes*: each once, in the order of the file, and of very many the first."""
    ordered = sorted(set(mistakes))
    if len(ordered) <= MAX_MISTAKES:
        return ordered
    last, more = ordered[MAX_MISTAKES], len(ordered) - MAX_MISTAKES
    text = f"here and below {'are' if more > 1 else 'is'} {more} more mistake{'s' if more > 1 else ''}"
    return [
        *ordered[:MAX_MISTAKES],
        Mistake(last.line, last.column, text),
    ]
