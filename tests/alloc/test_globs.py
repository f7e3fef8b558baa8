"""Patterns mean what they mean to `fnmatch`, and no pattern takes long."""

import re
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from types import FrameType

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from criproxy.alloc import globs
from criproxy.alloc.expressions import MAX_PATTERN_CHARS, MAX_VALUE_CHARS
from criproxy.alloc.globs import glob

_PIECES = st.sampled_from([*"ab-]![*?c\n^\\é", "[a-c]", "[!a]", "[b-", "[]a]", "[!]a]", "[--a]", "[c-a]", "[!c-a]"])


def steps_of(work: Callable[[], object]) -> int:
    """How many lines of `globs` *work* runs."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal steps
        steps += event == "line"
        return trace if frame.f_code.co_filename == globs.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # typeshed's own protocol is recursive
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


@settings(max_examples=1000)
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
    once = steps_of(lambda: ready.matches("a" * (MAX_VALUE_CHARS // 2)))
    twice = steps_of(lambda: ready.matches("a" * MAX_VALUE_CHARS))
    assert twice <= 2 * once
    assert twice <= 5 * MAX_VALUE_CHARS + 20


def test_a_pattern_is_prepared_once() -> None:
    """And in a number of steps that grows with its length."""
    glob.cache_clear()
    for pattern in ("[a-z]" * 51, "[!" + "abc" * 84 + "]", "?" * 256):
        assert steps_of(lambda pattern=pattern: glob(pattern)) < 40 * MAX_PATTERN_CHARS  # type: ignore[misc]
        assert steps_of(lambda pattern=pattern: glob(pattern)) == 0  # type: ignore[misc]
