"""Lines of styled text → what a terminal is sent: only the lines that have changed."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

Line = tuple[tuple[str, str], ...]
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know synchronized output show what is between these at once; others ignore them."""


class Painter:
    """Knows what a terminal shows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[Line] = []
        self._size = (0, 0)

    def forget(self) -> None:
        """Paint everything the next time."""
        self._shown = []

    def paint(self, lines: Sequence[Line], size: tuple[int, int]) -> str:
        """What makes the terminal, which has *size* columns and lines, show *lines*."""
        sent = ""
        if size != self._size or not self._shown:
            sent, self._shown, self._size = "\x1b[0m\x1b[2J", [], size
        for number, shown in enumerate(lines[: size[1]]):
            if number >= len(self._shown) or self._shown[number] != shown:
                sent += f"\x1b[{number + 1};1H{encoded(shown, self._console)}\x1b[0m\x1b[K"
        self._shown = list(lines)
        return f"{_BEGIN}{sent}{_END}" if sent else ""


def encoded(line: Line, console: Console) -> str:
    """One line, with the styles that the terminal of *console* knows."""
    if not line:
        return ""
    with console.capture() as captured:
        console.print(Text.assemble(*line), end="", soft_wrap=True)
    return captured.get()


def printed(line: Line, console: Console) -> str:
    """One line for standard output, without blanks at its end where that is no terminal."""
    return encoded(line, console) if console.is_terminal else "".join(text for text, _ in line).rstrip()
