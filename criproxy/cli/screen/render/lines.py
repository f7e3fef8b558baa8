"""Lines of styled text, and texts that are cut or filled up to a number of columns."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

Piece = tuple[str, str]
"""A text without line breaks, and its style in the words of rich; empty: none."""
Line = tuple[Piece, ...]

TROUBLE, NOTE, QUIET, HEADING, BAR = "bold red", "yellow", "dim", "bold", "reverse"
LEVELS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def line(*pieces: Piece | str) -> Line:
    """A line of *pieces*, without those that are empty."""
    made = ((piece, "") if isinstance(piece, str) else piece for piece in pieces)
    return tuple(piece for piece in made if piece[0])


def width_of(text: str) -> int:
    """The columns that *text* takes on a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int) -> str:
    """*text* in exactly *width* columns; where it is too long, its end is missing."""
    size = width_of(text)
    if size == width:
        return text
    if size < width:
        return text + " " * (width - size)
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def right(text: str, width: int) -> str:
    """*text* at the right of *width* columns."""
    return " " * max(0, width - width_of(text)) + (text if width_of(text) <= width else fit(text, width))


def middle(text: str, width: int) -> str:
    """*text* in exactly *width* columns; where it is too long, its middle is missing: the end tells names apart."""
    if width_of(text) <= width or width < 8:
        return fit(text, width)
    end = (width - 1) // 2
    kept = text[-end:]
    while width_of(kept) > end:
        kept = kept[1:]
    return f"{set_cell_size(text, width - 1 - width_of(kept))}…{kept}"


def cropped(pieces: Iterable[Piece], width: int) -> Line:
    """The beginning of a line, as far as it fits into *width* columns."""
    made, room = list[Piece](), width
    for text, style in pieces:
        if room <= 0:
            break
        size = width_of(text)
        made.append((text if size <= room else fit(text, room), style))
        room -= size
    return tuple(made)


def filled(pieces: Sequence[Piece | str], width: int, style: str = "") -> Line:
    """A line of exactly *width* columns."""
    made = cropped(line(*pieces), width)
    missing = width - sum(width_of(text) for text, _ in made)
    return (*made, (" " * missing, style)) if missing > 0 else made


def level(ratio: float | None) -> str:
    """One character, the fuller the larger *ratio* is; `?` where it is not known."""
    if ratio is None:
        return "?"
    return LEVELS[0] if ratio < 0.02 else LEVELS[min(1 + int(ratio * 8), 8)]


def gauge(ratio: float | None, width: int) -> str:
    """A horizontal bar of *width* columns."""
    if ratio is None:
        return " " * width
    eighths = round(min(max(ratio, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def percent(ratio: float | None) -> str:
    """Such as ``34%``; ``?`` where it is not known."""
    return "?" if ratio is None else f"{ratio * 100:.0f}%"


def heat(ratio: float | None) -> str:
    """The style of a bar."""
    if ratio is None or ratio < 0.7:
        return "green"
    return "yellow" if ratio < 0.9 else "red"


def rule(title: str, width: int, more: str = "") -> Line:
    """The heading of a part."""
    begin = [("── ", QUIET), (title, HEADING), (f" {more}" if more else "", QUIET), (" ", "")]
    used = sum(width_of(text) for text, _ in begin)
    return cropped([*begin, ("─" * max(0, width - used), QUIET)], width)
