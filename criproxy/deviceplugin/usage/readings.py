"""Parses readings from the JSON that programs and files contain; docs/vgpu.md describes the format."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from criproxy.devices.usage.values import CardUse, Process, ProcessUse, Reading

MAX_MIB = 1 << 31
MAX_PID = 1 << 31
AHEAD_S = 1.0
"""How far the time of a reading may be in the future; beyond that, it comes from a different clock."""
MOST_UNKNOWN = 5
"""How many unknown keys are kept for the log."""
LONGEST_TEXT = 500

Name = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value), Field(min_length=1)]
"""The name of a card: its id, or another name that the device plugin knows, such as its number."""
Mib = Annotated[float, Field(ge=0, lt=MAX_MIB)]


class InvalidReading(ValueError):
    """The reading is invalid; the text says which part of it."""


class _Part(BaseModel):
    """A JSON object; keys that criproxy does not know may be misspelt."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Use(_Part):
    card: Name
    memory_mib: Mib
    cores_percent: Annotated[float, Field(ge=0, le=100)] | None = None


class _ProcessUse(_Use):
    pid: Annotated[int, Field(gt=0, lt=MAX_PID)]


class _CardUse(_Use):
    total_mib: Mib = 0
    sampled_s: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Reading(_Part):
    processes: list[_ProcessUse] = []
    cards: list[_CardUse] = []
    unread: dict[str, str] = {}
    problem: str = ""
    monotonic_s: float | None = None

    def unknown_keys(self) -> Iterator[str]:
        yield from self.model_extra or ()
        for name, parts in (("processes", self.processes), ("cards", self.cards)):
            yield from (f"{name}[].{key}" for each in parts for key in each.model_extra or ())


def parse_reading(value: object, kind: str, at_s: float) -> Reading:
    """Parse a reading.

    Args:
        value: the JSON object: ``processes``, ``cards``, ``unread``, ``problem``, ``monotonic_s``; each may be missing,
            but ``processes`` only if there is a ``problem``: a missing list must not count as no use.
        kind: the name of the class.
        at_s: when the reading arrived, on the monotonic clock; it was taken then unless it contains an earlier time,
            since it may have waited in a pipe or file.

    Raises:
        InvalidReading: the reading is invalid.
    """
    try:
        found = _Reading.model_validate(value)
    except ValidationError as error:
        raise InvalidReading(_mistake(error.errors(include_url=False)[0])) from None
    unknown = [f"{key:.60}" for key in islice(dict.fromkeys(found.unknown_keys()), MOST_UNKNOWN)]
    if "processes" not in found.model_fields_set and not found.problem:
        raise InvalidReading("processes is missing" + (f"; unknown keys: {', '.join(unknown)}" if unknown else ""))
    taken_s = at_s if found.monotonic_s is None else found.monotonic_s
    if not 0 <= taken_s <= at_s + AHEAD_S:
        text = f"monotonic_s must be a past time of the machine's monotonic clock, not {taken_s}"
        raise InvalidReading(text)
    return Reading(
        kind=kind,
        at_s=min(taken_s, at_s),
        processes=tuple(
            ProcessUse(Process(each.pid, 0), each.card, int(each.memory_mib), each.cores_percent)
            for each in found.processes
        ),
        cards=tuple(
            CardUse(
                card=each.card,
                memory_mib=int(each.memory_mib),
                total_mib=int(each.total_mib),
                cores_percent=each.cores_percent,
            )
            for each in found.cards
        ),
        problem=found.problem[:LONGEST_TEXT],
        unread={card: reason[:LONGEST_TEXT] for card, reason in found.unread.items()},
        sampled_s={each.card: each.sampled_s for each in found.cards if each.sampled_s is not None},
        unknown_keys=tuple(unknown),
    )


def _mistake(detail: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    where = place.removeprefix(".") or "a reading"
    if detail["type"] == "missing":
        return f"{where} is missing"
    must = "must be an object" if detail["type"] == "model_type" else detail["msg"].replace("Input should", "must")
    return f"{where} {must}, not {detail['input']!r:.60}"
