"""The nearest valid word to a mistyped one."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no valid word is near; letter case and quotes do not count."""
    words = {option.strip("'").lower(): option.strip("'") for option in valid}
    near = get_close_matches(word.lower(), words, n=1)
    return f"; did you mean {words[near[0]]!r}?" if near else ""
