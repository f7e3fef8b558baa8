"""A reading as programs and files say it, in JSON; docs/vgpu.md describes the format for people who write them."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from criproxy.usage.values import CardUse, Process, ProcessUse, Reading

MAX_MIB = 1 << 31
MAX_PERCENT = 100.0
MAX_PID = 1 << 31
AHEAD_S = 1.0
"""How far the time of a reading may be in the future, before its clock is another one than ours."""


class NoReading(ValueError):
    """It cannot be understood; the text says which part."""


def reading_in(said: object, kind: str, at_s: float) -> Reading:
    """The reading that a program or file says.

    Args:
        said: what JSON has: ``processes``, ``cards``, ``unread``, ``problem``, ``monotonic_s``; each may be missing.
        kind: the name of the class.
        at_s: when it came, on the monotonic clock; it was taken then where it does not say that it was earlier.

    Raises:
        NoReading: it is none.
    """
    fields = _object(said, "a reading")
    unread = _object(fields.get("unread", {}), "unread")
    return Reading(
        kind=kind,
        at_s=_taken_s(fields, at_s),
        processes=tuple(_process(each, where) for each, where in _items(fields, "processes")),
        cards=tuple(_card(each, where) for each, where in _items(fields, "cards")),
        problem=_text(fields.get("problem", ""), "problem"),
        unread={card: _text(reason, f"unread.{card}") for card, reason in unread.items()},
        sampled_s=dict(_sampled(each, where) for each, where in _items(fields, "cards") if "sampled_s" in each),
    )


def _taken_s(fields: Mapping[str, Any], came_s: float) -> float:
    """When it was taken; what waited in a pipe or file is not of now."""
    value = fields.get("monotonic_s", came_s)
    if type(value) not in {int, float} or not 0 <= value <= came_s + AHEAD_S:
        raise NoReading(f"monotonic_s must be a past time of the machine's monotonic clock, not {value!r:.60}")
    return min(float(value), came_s)


def _items(fields: Mapping[str, Any], name: str) -> Iterator[tuple[Any, str]]:
    items = fields.get(name, [])
    if not isinstance(items, list):
        raise NoReading(f"{name} must be a list, not {items!r:.60}")
    for number, each in enumerate(items):
        yield each, f"{name}[{number}]"


def _process(said: object, where: str) -> ProcessUse:
    fields = _object(said, where)
    pid = fields.get("pid")
    if type(pid) is not int or not 0 < pid < MAX_PID:
        raise NoReading(f"{where}.pid must be a process ID, not {pid!r:.60}")
    return ProcessUse(
        process=Process(pid=pid, start_ticks=0),
        card=_name(fields, where),
        memory_mib=_mib(fields, "memory_mib", where),
        cores_percent=_percent(fields, where),
    )


def _card(said: object, where: str) -> CardUse:
    fields = _object(said, where)
    return CardUse(
        card=_name(fields, where),
        memory_mib=_mib(fields, "memory_mib", where),
        total_mib=_mib(fields, "total_mib", where),
        cores_percent=_percent(fields, where),
    )


def _sampled(fields: Mapping[str, Any], where: str) -> tuple[str, float]:
    """A card that has a time of its newest sample, and that time."""
    value = fields["sampled_s"]
    if type(value) not in {int, float} or not isfinite(value):
        raise NoReading(f"{where}.sampled_s must be a number of seconds, not {value!r:.60}")
    return _name(fields, where), float(value)


def _object(said: object, where: str) -> Mapping[str, Any]:
    if not isinstance(said, dict):
        raise NoReading(f"{where} must be an object, not {said!r:.60}")
    return said


def _text(said: object, where: str) -> str:
    if not isinstance(said, str):
        raise NoReading(f"{where} must be a string, not {said!r:.60}")
    return said[:500]


def _name(fields: Mapping[str, Any], where: str) -> str:
    """The card: by its id, or by another name that the device plugin knows, such as its number."""
    card = fields.get("card")
    if type(card) is int:
        return str(card)
    if not isinstance(card, str) or not card:
        raise NoReading(f"{where}.card must name a card, not {card!r:.60}")
    return card


def _mib(fields: Mapping[str, Any], name: str, where: str) -> int:
    value = fields.get(name, 0)
    if type(value) not in {int, float} or not 0 <= value < MAX_MIB:
        raise NoReading(f"{where}.{name} must be a number of MiB, not {value!r:.60}")
    return int(value)


def _percent(fields: Mapping[str, Any], where: str) -> float | None:
    value = fields.get("cores_percent")
    if value is None:
        return None
    if type(value) not in {int, float} or not 0 <= value <= MAX_PERCENT:
        raise NoReading(f"{where}.cores_percent must be between 0 and 100, not {value!r:.60}")
    return float(value)
