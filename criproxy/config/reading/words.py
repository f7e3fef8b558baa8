"""Words for messages: the nearest valid word to a mistyped one, and what a value is called."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_WORD = 60
"""Nothing longer is a misspelling of anything, or worth quoting in full."""


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
