"""Bytes of a terminal are keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cli.screen.keys import is_begun, keys_in


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        pytest.param("q", ["q"], id="letter"),
        pytest.param("é界", ["é", "界"], id="other-scripts"),
        pytest.param("\x1b[A\x1b[B", ["up", "down"], id="arrows"),
        pytest.param("\x1bOA", ["up"], id="application-mode"),
        pytest.param("\x1b[5~\x1b[6~", ["pageup", "pagedown"], id="pages"),
        pytest.param("\x1b[1;5C", ["right"], id="with-control"),
        pytest.param("\x1b[Z\t", ["backtab", "tab"], id="tab"),
        pytest.param("\x1b", ["escape"], id="escape"),
        pytest.param("\x1b[<0;3;4M", [], id="mouse"),
        pytest.param("a\x7f\r", ["a", "backspace", "enter"], id="editing"),
        pytest.param("\x00\x01", [], id="other-controls"),
    ],
)
def test_keys(text: str, keys: list[str]) -> None:
    """A sequence is one key; what means nothing is left out."""
    assert keys_in(text) == keys


@pytest.mark.parametrize(("text", "begun"), [("\x1b", True), ("a\x1b[1;", True), ("\x1bO", True), ("\x1b[A", False)])
def test_a_sequence_that_may_go_on(text: str, begun: bool) -> None:
    """Then the rest is waited for."""
    assert is_begun(text) == begun


@given(st.text())
def test_anything_may_be_typed(text: str) -> None:
    """Every key is a printable character or has a name."""
    assert all(key.isprintable() and key for key in keys_in(text))
