"""Reading traces that ``criproxy record`` has written."""

from collections.abc import Iterator
from pathlib import Path

from criproxy.errors import UsageError
from criproxy.placement.records.trace import Header, Traced, parse_header, parse_line
from criproxy.simulate.unreadable import unreadable


def read_trace(file: Path) -> tuple[Header, Iterator[Traced]]:
    """Whose trace *file* is, and its events one after the other: it may be larger than memory.

    Raises:
        UsageError: it is no trace, also while the events are read; the text names the line.
    """
    lines = _lines(file)
    first = next(lines, "")
    if not first:
        raise UsageError(f"{file}: is empty: it must be a trace, as criproxy record writes it")
    try:
        header = parse_header(first)
    except ValueError as error:
        raise UsageError(f"{file}:1: {error}") from None
    return header, _events(file, lines)


def _lines(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8") as source:
            yield from source
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error, "a trace, as criproxy record writes it") from error


def _events(file: Path, lines: Iterator[str]) -> Iterator[Traced]:
    for number, text in enumerate(lines, start=2):
        try:
            yield parse_line(text)
        except ValueError as error:
            raise UsageError(f"{file}:{number}: {error}") from None
