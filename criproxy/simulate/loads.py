"""Reading loads, whichever way they are written: as a specification or as a trace of a real node."""

from contextlib import suppress
from pathlib import Path

from criproxy.model.machine.topology import Topology
from criproxy.placement.events import TopologyChanged
from criproxy.placement.records.trace import is_header
from criproxy.simulate.load import Load, read_spec
from criproxy.simulate.load_cards import Cards
from criproxy.simulate.load_made import make
from criproxy.simulate.traces import read_trace

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
