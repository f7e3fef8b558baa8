"""Patterns mean what they mean to `fnmatch`, and no pattern takes long."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from criproxy.placement.alloc.affinity import globs
from criproxy.placement.alloc.affinity.expressions import MAX_PATTERN_CHARS, MAX_VALUE_CHARS
from criproxy.placement.alloc.affinity.globs import fits, glob
from tests.placement.alloc.steps import steps_of

_PIECES = st.sampled_from([*"ab-]![*?c\n^\\é", "[a-c]", "[!a]", "[b-", "[]a]", "[!]a]", "[--a]", "[c-a]", "[!c-a]"])


@settings(max_examples=250)
@given(st.lists(_PIECES, max_size=7).map("".join), st.text(st.sampled_from("abc-]![^\\\né"), max_size=7))
@example("[a-b-c]", "-")
@example("[!]", "[!]")
@example("*a*", "")
@example("a*a", "a")
@example("?*", "ab")
@example("[a-c-e]", "d")
def test_patterns_mean_what_they_mean_to_fnmatch(pattern: str, text: str) -> None:
    """All of them, also those with brackets that are not closed and ranges that are the wrong way round.

    But for a mark of exclamation after such a range, which is no reason to turn the meaning of the others round.
    """
    assume(not re.search("-.!", pattern, re.DOTALL))
    assert glob(pattern).matches(text) is fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("*" + "?" * (MAX_PATTERN_CHARS - 2) + "#", id="any-characters"),
        pytest.param("*" + "?a" * (MAX_PATTERN_CHARS // 2 - 2) + "?#?", id="mixed"),
        pytest.param("*a" * (MAX_PATTERN_CHARS // 2 - 1) + "?b", id="stars"),
        pytest.param("*" + "[!b]" * (MAX_PATTERN_CHARS // 4 - 1) + "?b", id="classes"),
    ],
)
def test_each_character_of_a_text_is_looked_at_once(pattern: str) -> None:
    """Whatever the pattern: a text twice as long takes twice as many steps, and no more than a few for a character."""
    ready = glob(pattern)
    once = steps_of(lambda: ready.matches("a" * (MAX_VALUE_CHARS // 2)), globs)
    twice = steps_of(lambda: ready.matches("a" * MAX_VALUE_CHARS), globs)
    assert twice <= 2 * once
    assert twice <= 5 * MAX_VALUE_CHARS + 20


def test_a_pattern_is_prepared_once() -> None:
    """And in a number of steps that grows with its length."""
    glob.cache_clear()
    for pattern in ("[a-z]" * 51, "[!" + "abc" * 84 + "]", "?" * 256):
        assert steps_of(lambda pattern=pattern: glob(pattern), globs) < 40 * MAX_PATTERN_CHARS  # type: ignore[misc]
        assert steps_of(lambda pattern=pattern: glob(pattern), globs) == 0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        pytest.param("*" + "a" * (MAX_PATTERN_CHARS - 4) + "b*", 3, id="one-long-text"),
        pytest.param("*a" * 20 + "*b", 22, id="many-texts"),
        pytest.param("a" * 100 + "*b", 2, id="ends"),
    ],
)
def test_texts_between_stars_are_looked_for_as_a_whole(pattern: str, pieces: int) -> None:
    """In a few steps for each of them, however long they are and however long the text that is looked at."""
    ready = glob(pattern)
    assert steps_of(lambda: ready.matches("a" * MAX_VALUE_CHARS), globs) <= 20 + 10 * pieces


@settings(max_examples=100)
@given(st.lists(_PIECES, max_size=12), st.data())
def test_a_text_that_a_pattern_describes_fits(pieces: list[str], data: st.DataObject) -> None:
    """Texts made of the pattern, which fit more often than others, are judged as by fnmatch, too."""
    made = {"*": st.text("abc", max_size=3), "?": st.sampled_from("abc\n")}
    text = "".join(data.draw(made.get(piece, st.sampled_from([piece, "a", "d"]))) for piece in pieces)
    pattern = "".join(pieces)
    assume(not re.search("-.!", pattern, re.DOTALL))
    assert glob(pattern).matches(text) is fnmatchcase(text, pattern)


def test_a_text_is_compared_with_a_pattern_once() -> None:
    """Hundreds of containers of one pod have the same value; and what is kept is bounded."""
    fits.cache_clear()
    pattern, text = "*?a?b*", "a" * MAX_VALUE_CHARS
    assert steps_of(lambda: fits(pattern, text), globs) > 0
    assert steps_of(lambda: fits(pattern, text), globs) == 0
    for number in range(600):
        fits("*", str(number))
    assert fits.cache_info().currsize == fits.cache_info().maxsize == 512
