"""Parses readings from the JSON that programs and files contain; docs/vgpu.md describes the format."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any, TypeVar

from criproxy.devices.usage.values import CardUse, Process, ProcessUse, Reading

T = TypeVar("T")

MAX_MIB = 1 << 31
MAX_PERCENT = 100.0
MAX_PID = 1 << 31
AHEAD_S = 1.0
"""How far the time of a reading may be in the future; beyond that, it comes from a different clock."""
READING_KEYS = frozenset({"processes", "cards", "unread", "problem", "monotonic_s"})
PROCESS_KEYS = frozenset({"pid", "card", "memory_mib", "cores_percent"})
CARD_KEYS = frozenset({"card", "memory_mib", "total_mib", "cores_percent", "sampled_s"})
MOST_UNKNOWN = 5
"""How many unknown keys are kept for the log."""


class InvalidReading(ValueError):
    """The reading is invalid; the text says which part of it."""


def parse_reading(value: object, kind: str, at_s: float) -> Reading:
    """Parse a reading.

    Args:
        value: the JSON object: ``processes``, ``cards``, ``unread``, ``problem``, ``monotonic_s``; each may be missing,
            but ``processes`` only if there is a ``problem``: a missing list must not count as no use.
        kind: the name of the class.
        at_s: when the reading arrived, on the monotonic clock; it was taken then unless it contains an earlier time.

    Raises:
        InvalidReading: the reading is invalid.
    """
    fields = _object(value, "a reading")
    unread = _object(fields.get("unread", {}), "unread")
    problem = _text(fields.get("problem", ""), "problem")
    if "processes" not in fields and not problem:
        raise InvalidReading(f"processes is missing{_instead(fields)}")
    return Reading(
        kind=kind,
        at_s=_taken_s(fields, at_s),
        processes=tuple(_each(fields, "processes", _process)),
        cards=tuple(_each(fields, "cards", _card)),
        problem=problem,
        unread={card: _text(reason, f"unread.{card}") for card, reason in unread.items()},
        sampled_s=dict(each for each in _each(fields, "cards", _sampled) if each),
        unknown_keys=tuple(islice(dict.fromkeys(_unknown_keys(fields)), MOST_UNKNOWN)),
    )


def _unknown_keys(fields: Mapping[str, Any]) -> Iterator[str]:
    """Return the keys that criproxy does not know: they may be misspelt."""
    yield from (f"{key:.60}" for key in fields if key not in READING_KEYS)
    for name, known in (("processes", PROCESS_KEYS), ("cards", CARD_KEYS)):
        for each in fields.get(name, ()):
            if not each.keys() <= known:
                yield from (f"{name}[].{key:.60}" for key in each if key not in known)


def _instead(fields: Mapping[str, Any]) -> str:
    """Return the top-level keys that may be a misspelling of a missing one, for an error message."""
    unknown = ", ".join(islice(_unknown_keys(dict.fromkeys(fields, ())), MOST_UNKNOWN))
    return f"; unknown keys: {unknown}" if unknown else ""


def _taken_s(fields: Mapping[str, Any], arrived_s: float) -> float:
    """Return when a reading was taken: it may have waited in a pipe or file."""
    value = fields.get("monotonic_s", arrived_s)
    if type(value) not in {int, float} or not 0 <= value <= arrived_s + AHEAD_S:
        raise InvalidReading(f"monotonic_s must be a past time of the machine's monotonic clock, not {value!r:.60}")
    return min(float(value), arrived_s)


def _each(fields: Mapping[str, Any], name: str, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    """Parse each object of a list; the sentence about an invalid one begins with its place."""
    items = fields.get(name, [])
    if not isinstance(items, list):
        raise InvalidReading(f"{name} must be a list, not {items!r:.60}")
    found: list[T] = []
    for each in items:
        if not isinstance(each, dict):
            raise InvalidReading(f"{name}[{len(found)}] must be an object, not {each!r:.60}")
        try:
            found.append(parse(each))
        except InvalidReading as error:
            raise InvalidReading(f"{name}[{len(found)}].{error}") from None
    return found


def _process(fields: Mapping[str, Any]) -> ProcessUse:
    pid = fields.get("pid")
    if type(pid) is not int or not 0 < pid < MAX_PID:
        raise InvalidReading(f"pid must be a process ID, not {pid!r:.60}")
    return ProcessUse(Process(pid, 0), _name(fields), _mib(fields, "memory_mib"), _percent(fields))


def _card(fields: Mapping[str, Any]) -> CardUse:
    return CardUse(
        card=_name(fields),
        memory_mib=_mib(fields, "memory_mib"),
        total_mib=_mib(fields, "total_mib") if "total_mib" in fields else 0,
        cores_percent=_percent(fields),
    )


def _sampled(fields: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return a card and the time of its newest sample, if it has that."""
    if "sampled_s" not in fields:
        return None
    value = fields["sampled_s"]
    if type(value) not in {int, float} or not isfinite(value):
        raise InvalidReading(f"sampled_s must be a number of seconds, not {value!r:.60}")
    return _name(fields), float(value)


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidReading(f"{where} must be an object, not {value!r:.60}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidReading(f"{where} must be a string, not {value!r:.60}")
    return value[:500]


def _name(fields: Mapping[str, Any]) -> str:
    """Return the name of the card: its id, or another name that the device plugin knows, such as its number."""
    card = fields.get("card")
    if type(card) is int:
        return str(card)
    if not isinstance(card, str) or not card:
        raise InvalidReading(f"card must name a card, not {card!r:.60}")
    return card


def _mib(fields: Mapping[str, Any], name: str) -> int:
    value: Any = fields.get(name)
    if type(value) not in {int, float} or not 0 <= value < MAX_MIB:
        raise InvalidReading(f"{name} must be a number of MiB, not {value!r:.60}")
    return int(value)


def _percent(fields: Mapping[str, Any]) -> float | None:
    value = fields.get("cores_percent")
    if value is None:
        return None
    if type(value) not in {int, float} or not 0 <= value <= MAX_PERCENT:
        raise InvalidReading(f"cores_percent must be between 0 and 100, not {value!r:.60}")
    return float(value)
