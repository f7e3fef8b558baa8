"""The texts and numbers in classes: amounts, frequencies, times, shares of caches; and the messages about bad ones."""

import re
from dataclasses import dataclass
from decimal import Decimal
from re import fullmatch
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from criproxy.model.text.amounts import parse_bytes
from criproxy.placement.options.usable import AS_WRITTEN

MAX_BYTES = (1 << 63) - 1
_PERCENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,2})?) ?%")
_FREQUENCY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([kMG]?)(?:[hH]z)?")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(us|µs|ms|s)")
_KHZ = {"": Decimal(1), "k": Decimal(1), "M": Decimal(1000), "G": Decimal(1_000_000)}
_US = {"us": 1, "µs": 1, "ms": 1000, "s": 1_000_000}
LEVELS = ("min", "base", "turbo")
"""Frequencies of the machine, in their order."""
_MAX_KHZ = 100_000_000
_BITS = r"[0-9]{1,2}(-[0-9]{1,2})?"
CACHE_SHARE = rf"[0-9]{{1,3}}%|[0-9]{{1,3}}-[0-9]{{1,3}}%|{_BITS}(,{_BITS})*|0x[0-9a-fA-F]{{1,16}}"
BANDWIDTH_SHARE = r"[0-9]{1,3}%|[0-9]{1,10}MBps"


@dataclass(frozen=True, slots=True)
class Amount:
    """A size, or a percentage of another one."""

    text: str
    """As in the policy file."""
    size: int = 0
    hundredths: int | None = None
    """Hundredths of a percent; None: it is *size*."""

    def of(self, whole: int) -> int:
        """Return what it is, rounded down, if it is a percentage of *whole*."""
        return self.size if self.hundredths is None else whole * self.hundredths // 10_000


def _to_amount(value: object) -> Amount:
    if isinstance(value, Amount):
        return value
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if found := _PERCENT.fullmatch(text):
        return Amount(text, hundredths=int(Decimal(found[1]) * 100))
    try:
        return Amount(text, _bounded(parse_bytes(text)))
    except ValueError:
        raise ValueError(f"must be a size such as 100Mi, or a percentage such as 90%, not {_shown(value)}") from None


def _bounded(number: int) -> int:
    if number > MAX_BYTES:
        raise ValueError("too large")
    return number


def _to_percent(value: object) -> object:
    """Hundredths of a percent out of ``20``, ``12.5`` or ``20%``."""
    if isinstance(value, Percent):
        return value
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    found = _PERCENT.fullmatch(f"{text.strip().removesuffix('%').strip()}%") if isinstance(text, str) else None
    if found is None or Decimal(found[1]) > 100:
        raise ValueError(f"must be a percentage from 0 to 100, such as 20, not {_shown(value)}")
    return Percent(str(text).strip(), int(Decimal(found[1]) * 100))


@dataclass(frozen=True, slots=True)
class Percent:
    """A percentage from 0 to 100."""

    text: str
    """As in the policy file."""
    hundredths: int
    """Hundredths of a percent."""


def _to_frequency(value: object) -> str:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if text in LEVELS:
        return text
    found = _FREQUENCY.fullmatch(text)
    khz = Decimal(found[1]) * _KHZ[found[2]] if found else Decimal(0)
    if found and not found[2] and text.lower().endswith("hz"):
        khz /= 1000
    if not 1 <= khz <= _MAX_KHZ:
        raise ValueError(
            f"must be a frequency such as 2GHz, 1800MHz or 1800000 (kHz), or min, base or turbo, not {_shown(value)}"
        )
    return str(int(khz))


def _to_khz(value: object) -> int:
    text = _to_frequency(value)
    if text in LEVELS:
        raise ValueError(f"must be a frequency such as 2GHz, 1800MHz or 1800000 (kHz), not {_shown(value)}")
    return int(text)


def _to_us(value: object) -> int:
    """Microseconds; what has been read already is a plain number."""
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    us = Decimal(found[1]) * _US[found[2]] if found else Decimal(0)
    if us != int(us) or us < 1:
        raise ValueError(f"must be a time of at least 1us with its unit, such as 10ms or 500us, not {_shown(value)}")
    return int(us)


def _to_rate(value: object) -> int:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    try:
        number = _bounded(parse_bytes(text))
    except ValueError:
        number = 0
    if not number:
        raise ValueError(f"must be a number above 0 such as 50M, 10k or 1000, not {_shown(value)}")
    return number


def _shown(value: object) -> str:
    return f"{value!r:.40}"


def _text(pattern: str, meaning: str) -> AfterValidator:
    def checked(value: str) -> str:
        if not fullmatch(pattern, value):
            raise ValueError(f"must be {meaning}, not {_shown(value)}")
        return value

    return AfterValidator(checked)


def _exactly(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


_WHOLE = {"type": "integer", "minimum": 0}
_UP_TO_100 = {"type": "number", "minimum": 0, "maximum": 100}


def _schema(pattern: str, *examples: str | int, number: dict[str, Any] | None = None) -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "pattern": f"^\\s*({pattern})\\s*$"}
    return WithJsonSchema({"anyOf": [text, number] if number else [text], "examples": list(examples)})


_SIZE = r"[0-9]+(\.[0-9]+)?([kKMGTP]i?)?"
_PER_CENT = r"[0-9]+(\.[0-9]+)? ?%"

AmountOption = Annotated[
    Amount, BeforeValidator(_to_amount), AS_WRITTEN, _schema(f"{_SIZE}|{_PER_CENT}", "90%", "100Mi", 0, number=_WHOLE)
]
PercentOption = Annotated[
    Percent, BeforeValidator(_to_percent), AS_WRITTEN, _schema(r"[0-9.]+ ?%?", 20, "20%", number=_UP_TO_100)
]
WHILE_IDLE = Percent("idle", 0)
"""A burst that is no percentage: no quota while CPUs are idle."""


def _to_burst(value: object) -> object:
    if value == WHILE_IDLE.text:
        return WHILE_IDLE
    try:
        return _to_percent(value)
    except ValueError:
        raise ValueError(f"must be a percentage from 0 to 100, such as 20, or idle, not {_shown(value)}") from None


BurstOption = Annotated[
    Percent, BeforeValidator(_to_burst), AS_WRITTEN, _schema(r"[0-9.]+ ?%?|idle", 20, "20%", "idle", number=_UP_TO_100)
]
_HZ = r"[0-9]+(\.[0-9]+)? ?[kMG]?([hH]z)?"
FrequencyOption = Annotated[
    str, BeforeValidator(_to_frequency), _schema(f"min|base|turbo|{_HZ}", "2GHz", "turbo", number=_WHOLE)
]
KhzOption = Annotated[int, BeforeValidator(_to_khz), _schema(_HZ, "2GHz", number=_WHOLE)]
TimeOption = Annotated[
    int,
    BeforeValidator(_to_us),
    PlainSerializer(lambda us: f"{us}us", return_type=str),
    _schema(r"[0-9]+(\.[0-9]+)? ?(us|µs|ms|s)", "10ms"),
]
RateOption = Annotated[int, BeforeValidator(_to_rate), _schema(_SIZE, "50M", "10k", 1000, number=_WHOLE)]
_WORD = r"[A-Za-z0-9_.-]{1,31}"
Word = Annotated[str, _text(_WORD, "a word of at most 31 letters, digits and _ . -"), _exactly(_WORD)]


def _to_energy(value: object) -> str:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not fullmatch(_WORD, text) or (text.lstrip("-").isdecimal() and not 0 <= int(text) <= 255):
        raise ValueError(f"must be a name such as balance_power, or a number from 0 to 255, not {_shown(value)}")
    return text


EnergyOption = Annotated[
    str,
    BeforeValidator(_to_energy),
    WithJsonSchema({"anyOf": [_exactly(_WORD).json_schema, {"type": "integer", "minimum": 0, "maximum": 255}]}),
]
_GLOB = r"[^\x00-\x20\x7f-\uffff]([^\x00-\x1f\x7f-\uffff]{0,126})"
Glob = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    _text(_GLOB, "a name, a number, or a pattern with * and ?, of at most 127 characters"),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 127}, {"type": "integer"}]}),
]
"""Names of interrupts."""
_STATE = r"[A-Za-z0-9_.-]([A-Za-z0-9_. -]{0,29}[A-Za-z0-9_.-])?"
IdleState = Annotated[str, _text(_STATE, "the name of an idle state such as C6"), _exactly(_STATE)]
DevicePattern = Annotated[
    str,
    _text(r"/dev/(?!.*\.\.)[A-Za-z0-9_.:/*?\[\]!-]{1,120}", "a block device such as /dev/sda or /dev/nvme*n1"),
    WithJsonSchema({"type": "string", "pattern": "^/dev/"}),
]
Weight = Annotated[int, Field(ge=1, le=1000)]
CLASS_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}|system/default"
ClassName = Annotated[
    str, _text(CLASS_NAME, "a name of at most 63 letters, digits and . _ -"), _exactly(f"({CLASS_NAME})")
]
