"""Texts from outside are as long as a line may be, and hold nothing that a terminal would act on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.text.bounded import bounded, bounded_text, bounded_texts, printable

ANY = st.text(alphabet=st.characters(), max_size=60)
DATA = st.recursive(
    ANY | st.integers() | st.none(), lambda each: st.lists(each, max_size=4) | st.dictionaries(ANY, each, max_size=3)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("shop/web/main", "shop/web/main", id="plain"),
        pytest.param("größer → 4 µs", "größer → 4 µs", id="letters"),
        pytest.param("[red]x[/x]", "[red]x[/x]", id="markup-is-text"),
        pytest.param("a\nb\tc", "a\\nb\\tc", id="lines"),
        pytest.param("\x1b[31mred", "\\x1b[31mred", id="escape"),
        pytest.param("\x9b31mred", "\\x9b31mred", id="c1"),
        pytest.param("a\u202eb", "a\\u202eb", id="right-to-left"),
        pytest.param("a\u200bb\ufeff", "a\\u200bb\\ufeff", id="no-width"),
        pytest.param("\ud800", "\\ud800", id="half-a-character"),
    ],
)
def test_what_a_terminal_would_act_on_is_shown(text: str, expected: str) -> None:
    """As Python writes it; everything else stays."""
    assert printable(text) == expected


@given(DATA)
def test_all_texts_within_an_answer_are_printable(data: object) -> None:
    """Whatever is in it, and its shape stays."""
    found = bounded(data)
    assert type(found) is type(data)
    _all_printable(found)


def _all_printable(value: object) -> None:
    if isinstance(value, str):
        assert value.isprintable()
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            _all_printable(key)
            _all_printable(item)
    elif isinstance(value, list):
        for item in value:
            _all_printable(item)


def test_what_is_cut_is_told() -> None:
    """How much of a text, and how many of a list."""
    assert bounded_text("x" * 30, 10) == "xxxxxxxxxx… (20 more characters)"
    assert bounded_text("x" * 10, 10) == "x" * 10
    assert bounded_texts(["a", "b", "c", "d"], 2, 10) == ("a", "b", "and 2 more")
    assert bounded_texts(["a", "b", "c"], 3, 10) == ("a", "b", "c")


@given(st.text(alphabet=st.characters(), max_size=40), st.integers(1, 30))
def test_what_is_shown_is_as_short_as_what_is_not(text: str, limit: int) -> None:
    """An escape takes ten characters: these count."""
    shown = bounded(text, limit)
    assert len(shown) <= limit + len("… (40 more characters)")
