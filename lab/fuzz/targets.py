"""The one function that every engine calls: the first byte says which target the others are for."""

from lab.fuzz import raw, structured

NAMES = ("structured", "raw")
_RUNS = (structured.run, raw.run)


def target_of(data: bytes) -> int:
    """Index in `NAMES`."""
    choice = data[0] if data else 0
    return int(choice >= 128)


def run(data: bytes) -> None:
    """Run one input.

    Raises:
        Exception: any exception is a finding.
    """
    _RUNS[target_of(data)](data[1:])
