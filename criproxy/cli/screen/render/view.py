"""What the user has chosen to see, and what each key does. Pure."""

from dataclasses import dataclass, replace
from enum import Enum

from criproxy.api.views.top.scene import Sort

MAX_FILTER = 200
END = 1 << 30
"""As `View.skipped`: the end of the list, also while it grows."""


class Page(Enum):
    """What fills the screen."""

    ALL = "1"
    CPUS = "2"
    CONTAINERS = "3"
    DEVICES = "4"
    EVENTS = "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The choice."""

    page: Page = Page.ALL
    sort: Sort = Sort.CPU
    reverse: bool = False
    text: str = ""
    """What the names of the shown containers contain."""
    typing: bool = False
    """Whether keys go into that text."""
    skipped: int = 0
    """How many lines of the list are above the screen."""
    frozen: bool = False
    """Whether the screen keeps what it shows."""
    helping: bool = False


_SORTS = {"c": Sort.CPU, "m": Sort.MEMORY, "n": Sort.NAME, "x": Sort.EXCLUSIVE}
_QUITTING = ("q", "Q", "ctrl-c", "ctrl-d")
_TURNS = {"tab": 1, "right": 1, "backtab": -1, "left": -1}
_PAGES = {page.value: page for page in Page}


def pressed(view: View, key: str, step: int, last: int) -> View | None:
    """The view after a *key*; None: the user has seen enough.

    Args:
        view: the one before.
        key: a character, or the name of a key such as ``up``.
        step: the lines of a page of the list.
        last: how many lines are above the screen at the end of the list.
    """
    if view.typing:
        return _typed(view, key)
    if view.helping:
        return None if key in _QUITTING else replace(view, helping=False)
    if key in _QUITTING:
        return None
    if key in _SORTS:
        return replace(view, sort=_SORTS[key], reverse=False, skipped=0)
    if key in _PAGES:
        return replace(view, page=_PAGES[key], skipped=0)
    return _moved(_switched(view, key), key, step, last)


def _switched(view: View, key: str) -> View:
    if key in _TURNS:
        return replace(view, page=_next(view.page, _TURNS[key]), skipped=0)
    match key:
        case "r":
            view = replace(view, reverse=not view.reverse, skipped=0)
        case "/":
            view = replace(view, typing=True)
        case "escape":
            view = replace(view, text="", page=Page.ALL, skipped=0)
        case " ":
            view = replace(view, frozen=not view.frozen)
        case "h" | "?":
            view = replace(view, helping=True)
    return view


def _next(page: Page, by: int) -> Page:
    pages = list(Page)
    return pages[(pages.index(page) + by) % len(pages)]


def _moved(view: View, key: str, step: int, last: int) -> View:
    moves = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": step, "pageup": -step}
    if key in moves:
        return replace(view, skipped=max(0, min(min(view.skipped, last) + moves[key], last)))
    if key == "home":
        return replace(view, skipped=0)
    return replace(view, skipped=END) if key == "end" else view


def _typed(view: View, key: str) -> View | None:
    if key == "ctrl-c":
        return None
    match key:
        case "enter":
            view = replace(view, typing=False)
        case "escape":
            view = replace(view, typing=False, text="", skipped=0)
        case "backspace":
            view = replace(view, text=view.text[:-1], skipped=0)
        case "ctrl-u":
            view = replace(view, text="", skipped=0)
        case _ if len(key) == 1 and key.isprintable() and len(view.text) < MAX_FILTER:
            view = replace(view, text=view.text + key, skipped=0)
    return view


def window(count: int, room: int, skipped: int) -> tuple[int, int]:
    """Which of *count* lines are on a screen with *room* for so many: from the first to before the second."""
    first = max(0, min(skipped, count - room))
    return first, min(count, first + room)
