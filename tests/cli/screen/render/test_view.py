"""What each key does."""

import pytest

from criproxy.api.views.top.scene import Sort
from criproxy.cli.screen.render.view import END, Page, View, pressed, window


@pytest.mark.parametrize(
    ("view", "key", "expected"),
    [
        pytest.param(View(), "q", None, id="quit"),
        pytest.param(View(), "ctrl-c", None, id="ctrl-c"),
        pytest.param(View(helping=True), "q", None, id="quit-from-help"),
        pytest.param(View(typing=True), "ctrl-c", None, id="ctrl-c-while-typing"),
        pytest.param(View(skipped=3), "m", View(sort=Sort.MEMORY), id="sort"),
        pytest.param(View(), "3", View(page=Page.CONTAINERS), id="page"),
        pytest.param(View(page=Page.EVENTS), "tab", View(page=Page.ALL), id="tab-goes-around"),
        pytest.param(View(), "backtab", View(page=Page.EVENTS), id="backtab"),
        pytest.param(View(), "r", View(reverse=True), id="reverse"),
        pytest.param(View(), "/", View(typing=True), id="filter"),
        pytest.param(View(typing=True, text="w"), "q", View(typing=True, text="wq"), id="q-is-a-letter-there"),
        pytest.param(View(typing=True, text="wq"), "backspace", View(typing=True, text="w"), id="backspace"),
        pytest.param(View(typing=True, text="w"), "enter", View(text="w"), id="enter-keeps-it"),
        pytest.param(View(typing=True, text="w"), "escape", View(), id="escape-clears-it"),
        pytest.param(View(text="w", page=Page.CPUS), "escape", View(), id="escape"),
        pytest.param(View(), "down", View(skipped=1), id="down"),
        pytest.param(View(), "up", View(), id="not-above-the-first"),
        pytest.param(View(), "pagedown", View(skipped=10), id="page-down"),
        pytest.param(View(skipped=15), "pagedown", View(skipped=20), id="page-down-not-beyond-the-end"),
        pytest.param(View(skipped=20), "down", View(skipped=20), id="down-not-beyond-the-end"),
        pytest.param(View(), "end", View(skipped=END), id="end"),
        pytest.param(View(skipped=END), "up", View(skipped=19), id="up-from-the-end"),
        pytest.param(View(skipped=END), "pageup", View(skipped=10), id="page-up-from-the-end"),
        pytest.param(View(skipped=50), "k", View(skipped=19), id="up-where-the-list-has-become-shorter"),
        pytest.param(View(skipped=5), "home", View(), id="home"),
        pytest.param(View(), " ", View(frozen=True), id="freeze"),
        pytest.param(View(), "h", View(helping=True), id="help"),
        pytest.param(View(helping=True), "x", View(), id="any-key-ends-help"),
        pytest.param(View(), "é", View(), id="no-key-of-ours"),
    ],
)
def test_a_key(view: View, key: str, expected: View | None) -> None:
    """It changes the view, or ends it; at the end of the list, 20 lines are above the screen."""
    assert pressed(view, key, 10, 20) == expected


@pytest.mark.parametrize(
    ("count", "room", "skipped", "expected"),
    [
        pytest.param(5, 10, 3, (0, 5), id="all-fit"),
        pytest.param(50, 10, 0, (0, 10), id="first"),
        pytest.param(50, 10, 1 << 30, (40, 50), id="end"),
        pytest.param(0, 10, 5, (0, 0), id="none"),
        pytest.param(5, 0, 0, (0, 0), id="no-room"),
    ],
)
def test_the_lines_on_the_screen(count: int, room: int, skipped: int, expected: tuple[int, int]) -> None:
    """Never beyond the last one."""
    assert window(count, room, skipped) == expected
