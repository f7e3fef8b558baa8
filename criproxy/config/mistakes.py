"""What is wrong with a policy file, as people read it; the nearest valid word to a mistyped one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from criproxy.model.text.amounts import counted
from criproxy.model.text.sources import node_policy_of

MAX_TEXT = 400
"""Characters of one sentence: it may quote what the file says, and that may be a megabyte."""
MAX_MISTAKES = 50
"""Reported at once; a longer list begins with these."""
MAX_WORD = 60
"""Nothing longer is a misspelling of anything, or worth quoting in full."""
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9]*([.\[][^\s:]*)?: ")
"""How sentences about an option begin: with its path."""


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
        """``file:line:column: sentence``, the form that editors jump to; of a NodePolicy, the path of the option.

        Only the agent sees the text that it makes of a NodePolicy, and so its lines.
        """
        if node_policy_of(str(file)):
            return f"{file}: spec.policy{'.' if _OPTION.match(self.sentence) else ': '}{self.sentence}"
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{file}{place}: {self.sentence}"


def reported(mistakes: list[Mistake]) -> list[Mistake]:
    """The *mistakes* to report: each once, in the order of the file, and of very many the first."""
    ordered = sorted(set(mistakes))
    if len(ordered) <= MAX_MISTAKES:
        return ordered
    last, more = ordered[MAX_MISTAKES], len(ordered) - MAX_MISTAKES
    return [*ordered[:MAX_MISTAKES], Mistake(last.line, last.column, f"{counted(more, 'more mistake')} here and below")]


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no valid word is near; letter case, ``-`` and ``_`` do not count."""
    words = {_plain(option): option for option in valid}
    near = get_close_matches(_plain(word), words, n=1) if len(word) <= MAX_WORD else []
    return f"; did you mean {words[near[0]]!r}?" if near else ""


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def shown(value: object) -> str:
    """A value of a policy file as its writer would name it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= MAX_WORD else f"{value[: MAX_WORD - 1]}…")
        case list():
            return "a list"
        case dict():
            return "a group of options"
        case _:
            return str(value)
