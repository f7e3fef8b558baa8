"""Patterns with wildcards, as `fnmatch` has them, in time that grows with the text and the pattern.

Tenants write patterns for texts that they write, too. A regular expression may try all of the pattern at each character
of the text, and other calls wait meanwhile. Here a pattern is split at its stars, and each piece is looked for once,
from where the piece before it ended: if it fits anywhere, the first place leaves the most for the others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import or_

_Range = tuple[int, int]
"""The first code point and the last one."""
_Token = str | tuple[_Range, ...]
"""A character, or those that fit at its place."""
_LAST = 0x10FFFF
_ANY: tuple[_Range, ...] = ((0, _LAST),)
"""Stands for `?`."""
_STAR: tuple[_Range, ...] = ((-1, -1),)
"""Stands for `*`."""


class _Places:
    """Where the characters of a text are: bit n of a number is set if the character is at place n."""

    def __init__(self, text: str) -> None:
        of: dict[str, int] = {}
        bit = 1
        for character in text:
            of[character] = of.get(character, 0) | bit
            bit <<= 1
        there = sorted(of)
        self._of = of
        self._codes = list(map(ord, there))
        self._before = list(accumulate((of[character] for character in there), or_, initial=0))
        """By place in `_codes`: where any of the lower ones is."""

    def of(self, token: _Token) -> int:
        """Where *token* fits."""
        if isinstance(token, str):
            return self._of.get(token, 0)
        codes, before = self._codes, self._before
        found = 0
        for first, last in token:
            found |= before[bisect_right(codes, last)] ^ before[bisect_left(codes, first)]
        return found


@lru_cache(maxsize=4)
def _places(text: str) -> _Places:
    """A text is often compared with several patterns, one after the other."""
    return _Places(text)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is between two stars: as many characters as it has tokens."""

    length: int
    text: str | None
    """All of it, if it has no wildcards."""
    tests: tuple[tuple[int, _Token], ...] = ()
    """Otherwise its tokens but for `?`, each with its place."""

    def find(self, text: str, first: int, last: int) -> int:
        """The first place from *first* on at which it fits and ends at *last* or before; -1: there is none."""
        if self.text is not None:
            return text.find(self.text, first, last)
        count = last - self.length - first + 1
        if count <= 0:
            return -1
        found = ((1 << count) - 1) << first
        if self.tests:
            places = _places(text)
            for place, token in self.tests:
                found &= places.of(token) >> place
                if not found:
                    return -1
        return (found & -found).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern that is ready to be compared."""

    pieces: tuple[_Piece, ...]
    """Before, between and after its stars; those at its ends may be empty."""
    least: int
    """The number of characters of the shortest text that fits."""

    def matches(self, text: str) -> bool:
        """Whether all of *text* is what the pattern says."""
        pieces, end = self.pieces, len(text)
        if end < self.least or (len(pieces) == 1 and end > self.least):
            return False
        begin = pieces[0].length
        if pieces[0].find(text, 0, begin):
            return False
        if len(pieces) == 1:
            return True
        tail = end - pieces[-1].length
        if pieces[-1].find(text, tail, end) < 0:
            return False
        for piece in pieces[1:-1]:
            if (found := piece.find(text, begin, tail)) < 0:
                return False
            begin = found + piece.length
        return True


@lru_cache(maxsize=512)
def fits(pattern: str, text: str) -> bool:
    """Whether all of *text* is what *pattern* says, see `glob`; for short texts, of which several are kept."""
    return glob(pattern).matches(text)


@lru_cache(maxsize=256)
def glob(pattern: str) -> Glob:
    """*pattern*, of which `*` is any text, `?` any character, `[a-z]` one of some and `[!a-z]` any other one.

    A bracket that is not closed is itself. Upper and lower case differ, and nothing is special about line breaks.
    """
    tokens = _tokens(pattern)
    stars = [place for place, token in enumerate(tokens) if token is _STAR]
    begins, ends = (0, *(place + 1 for place in stars)), (*stars, len(tokens))
    pieces = tuple(_piece(tokens[begin:end]) for begin, end in zip(begins, ends, strict=True))
    return Glob(pieces, len(tokens) - len(stars))


def _piece(tokens: Sequence[_Token]) -> _Piece:
    texts = [token for token in tokens if isinstance(token, str)]
    if len(texts) == len(tokens):
        return _Piece(len(tokens), "".join(texts))
    return _Piece(len(tokens), None, tuple((place, token) for place, token in enumerate(tokens) if token is not _ANY))


def _tokens(pattern: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while place < len(pattern):
        character, place = pattern[place], place + 1
        if character == "*":
            found += [_STAR] if not found or found[-1] is not _STAR else []
        elif character == "?":
            found.append(_ANY)
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
