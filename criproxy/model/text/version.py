"""Versions of criproxy: the daemon and the device plugin are two processes, and may be of different ones."""

import re

_NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,5}")


def difference(own: str, other: str) -> str:
    """Return how *other* compares with *own*: ``older``, ``newer`` or ``different``; empty if equal or unknown.

    What is behind the numbers, such as ``rc1``, decides nothing: such versions are only ``different``.
    """
    if other in ("", own):
        return ""
    mine, theirs = _numbers(own), _numbers(other)
    if mine is None or theirs is None or mine == theirs:
        return "different"
    return "older" if theirs < mine else "newer"


def _numbers(version: str) -> list[int] | None:
    """Return the numbers at the beginning of *version*, without zeros at their end; None if there are none."""
    found = _NUMBERS.match(version)
    if found is None:
        return None
    numbers = [int(each) for each in found[0].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
