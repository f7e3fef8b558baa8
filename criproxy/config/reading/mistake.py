"""One thing that is wrong with a policy file, as people read it."""

from dataclasses import dataclass
from pathlib import Path

from criproxy.model.text.amounts import counted

MAX_TEXT = 400
"""Characters of one sentence: it may quote what the file says, and that may be a megabyte."""
MAX_MISTAKES = 50
"""Reported at once; a longer list begins with these."""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """What is wrong and where; line and column count from 1, and are 0 for the file as a whole."""

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


def reported(mistakes: list[Mistake]) -> list[Mistake]:
    """The *mistakes* to report: each once, in the order of the file, and of very many the first."""
    ordered = sorted(set(mistakes))
    if len(ordered) <= MAX_MISTAKES:
        return ordered
    last, more = ordered[MAX_MISTAKES], len(ordered) - MAX_MISTAKES
    return [*ordered[:MAX_MISTAKES], Mistake(last.line, last.column, f"{counted(more, 'more mistake')} here and below")]
