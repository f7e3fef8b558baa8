"""Reading loads, whichever way they are written: as a specification or as a trace of a real node."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from criproxy.errors import UsageError
from criproxy.model.machine.topology import Topology
from criproxy.placement.events import TopologyChanged
from criproxy.placement.records.trace import Header, Traced, is_header, parse_header, parse_line
from criproxy.simulate.load import Load, read_spec
from criproxy.simulate.load_cards import Cards
from criproxy.simulate.load_made import make
from criproxy.simulate.unreadable import unreadable

TRACE_SUFFIX = ".jsonl"
_HEAD_BYTES = 64


def read_load(file: Path, topology: Topology | None = None, cards: Cards = ()) -> Load:
    """The load of *file*, a trace or a specification: see `is_trace`.

    Args:
        file: to read.
        topology: the machine; None takes that of the file.
        cards: those of the machine, for a specification; none takes those of the file.

    Raises:
        UsageError: it cannot be read or used; the text names the place.
    """
    if is_trace(file):
        return _replayed(file, topology)
    return make(read_spec(file), topology, file.stem, cards)


def is_trace(file: Path) -> bool:
    """Whether the load of *file* is a trace, by its name or by the first line of its content."""
    if file.suffix == TRACE_SUFFIX:
        return True
    with suppress(OSError):  # whoever reads all of it says what is wrong
        if file.is_file():
            with file.open("rb") as source:
                return is_header(source.read(_HEAD_BYTES))
    return False


def _replayed(file: Path, topology: Topology | None) -> Load:
    """What a trace has; on another machine than its own, CPUs neither come nor go."""
    header, traced = read_trace(file)
    events = tuple(each for each in traced if topology is None or not isinstance(each.event, TopologyChanged))
    duration_s = max((each.at_s for each in events), default=0.0)
    return Load(file.stem, topology or header.topology, events, duration_s)


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
