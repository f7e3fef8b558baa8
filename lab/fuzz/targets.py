"""The one function that every engine calls: the first byte says which target the others are for."""

from lab.fuzz import codecs, raw, structured

NAMES = ("structured", "raw", "codecs")
_RUNS = (structured.run, raw.run, codecs.run)


def target_of(data: bytes) -> int:
    """Index in `NAMES`: mostly the structured one, which finds most."""
    choice = data[0] if data else 0
    return 0 if choice < 128 else 1 if choice < 208 else 2


def run(data: bytes) -> set[int]:
    """Run one input; returns the states that it touched, as hashes.

    Raises:
        Exception: any exception is a finding.
    """
    target = target_of(data)
    return {hash((target, feature)) for feature in _RUNS[target](data[1:])}
