"""Patterns with wildcards, as `fnmatch` has them, in time that grows with the text alone.

Tenants write patterns for texts that they write, too. A regular expression may go back for each character of the text
over all of the pattern, and other calls wait meanwhile; here each character is looked at once.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import xor
from typing import TypeGuard

_Range = tuple[int, int]
"""The first code point and the last one."""
_Token = str | tuple[_Range, ...]
"""A character, or those that fit at its place."""
_LAST = 0x10FFFF
_ANY: _Range = 0, _LAST
_STAR: tuple[_Range, ...] = ((-1, -1),)
"""Stands for `*`."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern that is ready to be compared: what it begins and ends with, and the part from its first wildcard on.

    The part between is a machine whose states are the bits of one number: bit n is set after its first n tokens.
    """

    before: str
    after: str
    stars: int
    """The states in which any character may come."""
    end: int
    starts: tuple[int, ...]
    """Code points from which on another set of tokens fits, ascending from 0."""
    fitting: tuple[int, ...]
    """By place in `starts`: the states whose next token fits such a character."""

    def matches(self, text: str) -> bool:
        """Whether all of *text* is what the pattern says."""
        first, last = len(self.before), len(text) - len(self.after)
        if last < first or not text.startswith(self.before) or not text.endswith(self.after):
            return False
        if (self.stars, self.end) == (1, 2):  # one star and nothing else
            return True
        stars, starts, fitting = self.stars, self.starts, self.fitting
        states = 1 | (1 & stars) << 1
        for character in text[first:last]:
            states = (states & fitting[bisect_right(starts, ord(character)) - 1]) << 1 | states & stars
            states |= (states & stars) << 1  # a star may also stand for nothing
            if not states:
                return False
        return bool(states & self.end)


@lru_cache(maxsize=256)
def glob(pattern: str) -> Glob:
    """*pattern*, of which `*` is any text, `?` any character, `[a-z]` one of some and `[!a-z]` any other one.

    A bracket that is not closed is itself. Upper and lower case differ, and nothing is special about line breaks.
    """
    tokens = _tokens(pattern)
    first = next((place for place, token in enumerate(tokens) if not isinstance(token, str)), len(tokens))
    last = len(tokens)
    while last > first and isinstance(tokens[last - 1], str):
        last -= 1
    before, after = ("".join(filter(_is_text, part)) for part in (tokens[:first], tokens[last:]))
    middle = tokens[first:last]
    stars = sum(1 << place for place, token in enumerate(middle) if token is _STAR)
    starts, fitting = _fitting(middle)
    return Glob(before, after, stars, 1 << len(middle), starts, fitting)


def _is_text(token: _Token) -> TypeGuard[str]:
    return isinstance(token, str)


def _tokens(pattern: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while place < len(pattern):
        character, place = pattern[place], place + 1
        if character == "*":
            found += [_STAR] if not found or found[-1] is not _STAR else []
        elif character == "?":
            found.append((_ANY,))
        elif character == "[" and (end := _closed(pattern, place)):
            found.append(_ranges(pattern[place:end]))
            place = end + 1
        else:
            found.append(character)
    return found


def _closed(pattern: str, place: int) -> int:
    """Where the bracket ends whose content begins at *place*; 0: nowhere. One that comes first is content."""
    return max(0, pattern.find("]", place + 1 + pattern.startswith("!", place)))


def _ranges(content: str) -> tuple[_Range, ...]:
    """What ``a-z_`` or ``!a-z_`` stands for, ascending, none touching another."""
    chosen = content.removeprefix("!")
    found: list[_Range] = []
    place = 0
    while place < len(chosen):
        is_range = chosen[place + 1 : place + 2] == "-" and place + 2 < len(chosen)
        found.append((ord(chosen[place]), ord(chosen[place + 2 * is_range])))
        place += 3 if is_range else 1
    merged = _merged(found)
    return merged if chosen == content else _others(merged)


def _merged(ranges: Iterable[_Range]) -> tuple[_Range, ...]:
    found: list[_Range] = []
    for first, last in sorted(ranges):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _others(ranges: Iterable[_Range]) -> tuple[_Range, ...]:
    """Everything between *ranges*."""
    found, begin = list[_Range](), 0
    for first, last in ranges:
        found.append((begin, first - 1))
        begin = last + 1
    return _merged([*found, (begin, _LAST)])


def _fitting(tokens: Sequence[_Token]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`Glob.starts` and `Glob.fitting`."""
    changes = {0: 0}
    for place, token in enumerate(tokens):
        if token is _STAR:
            continue
        ranges = ((ord(token), ord(token)),) if isinstance(token, str) else token
        for first, last in ranges:
            changes[first] = changes.get(first, 0) ^ 1 << place
            changes[last + 1] = changes.get(last + 1, 0) ^ 1 << place
    starts = tuple(sorted(changes))
    return starts, tuple(accumulate((changes[start] for start in starts), xor))
