"""Parses readings from the JSON that programs and files contain; docs/vgpu.md describes the format."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from criproxy.usage.values import CardUse, Process, ProcessUse, Reading

MAX_MIB = 1 << 31
MAX_PERCENT = 100.0
MAX_PID = 1 << 31
AHEAD_S = 1.0
"""How far the time of a reading may be in the future; beyond that, it comes from a different clock."""


class InvalidReading(ValueError):
    """The reading is invalid; the text says which part of it."""


def parse_reading(value: object, kind: str, at_s: float) -> Reading:
    """Parse a reading.

    Args:
        value: the JSON object: ``processes``, ``cards``, ``unread``, ``problem``, ``monotonic_s``; each may be missing.
        kind: the name of the class.
        at_s: when the reading arrived, on the monotonic clock; it was taken then unless it contains an earlier time.

    Raises:
        InvalidReading: the reading is invalid.
    """
    fields = _object(value, "a reading")
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


def _taken_s(fields: Mapping[str, Any], arrived_s: float) -> float:
    """Return when a reading was taken: it may have waited in a pipe or file."""
    value = fields.get("monotonic_s", arrived_s)
    if type(value) not in {int, float} or not 0 <= value <= arrived_s + AHEAD_S:
        raise InvalidReading(f"monotonic_s must be a past time of the machine's monotonic clock, not {value!r:.60}")
    return min(float(value), arrived_s)


def _items(fields: Mapping[str, Any], name: str) -> Iterator[tuple[Any, str]]:
    items = fields.get(name, [])
    if not isinstance(items, list):
        raise InvalidReading(f"{name} must be a list, not {items!r:.60}")
    for number, each in enumerate(items):
        yield each, f"{name}[{number}]"


def _process(value: object, where: str) -> ProcessUse:
    fields = _object(value, where)
    pid = fields.get("pid")
    if type(pid) is not int or not 0 < pid < MAX_PID:
        raise InvalidReading(f"{where}.pid must be a process ID, not {pid!r:.60}")
    return ProcessUse(
        process=Process(pid=pid, start_ticks=0),
        card=_name(fields, where),
        memory_mib=_mib(fields, "memory_mib", where),
        cores_percent=_percent(fields, where),
    )


def _card(value: object, where: str) -> CardUse:
    fields = _object(value, where)
    return CardUse(
        card=_name(fields, where),
        memory_mib=_mib(fields, "memory_mib", where),
        total_mib=_mib(fields, "total_mib", where),
        cores_percent=_percent(fields, where),
    )


def _sampled(fields: Mapping[str, Any], where: str) -> tuple[str, float]:
    """Return a card that has the time of its newest sample, and that time."""
    value = fields["sampled_s"]
    if type(value) not in {int, float} or not isfinite(value):
        raise InvalidReading(f"{where}.sampled_s must be a number of seconds, not {value!r:.60}")
    return _name(fields, where), float(value)


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidReading(f"{where} must be an object, not {value!r:.60}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidReading(f"{where} must be a string, not {value!r:.60}")
    return value[:500]


def _name(fields: Mapping[str, Any], where: str) -> str:
    """Return the name of the card: its id, or another name that the device plugin knows, such as its number."""
    card = fields.get("card")
    if type(card) is int:
        return str(card)
    if not isinstance(card, str) or not card:
        raise InvalidReading(f"{where}.card must name a card, not {card!r:.60}")
    return card


def _mib(fields: Mapping[str, Any], name: str, where: str) -> int:
    value = fields.get(name, 0)
    if type(value) not in {int, float} or not 0 <= value < MAX_MIB:
        raise InvalidReading(f"{where}.{name} must be a number of MiB, not {value!r:.60}")
    return int(value)


def _percent(fields: Mapping[str, Any], where: str) -> float | None:
    value = fields.get("cores_percent")
    if value is None:
        return None
    if type(value) not in {int, float} or not 0 <= value <= MAX_PERCENT:
        raise InvalidReading(f"{where}.cores_percent must be between 0 and 100, not {value!r:.60}")
    return float(value)
