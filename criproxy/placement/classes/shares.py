"""Shares of caches and of memory bandwidth in a policy file, in the forms that goresctrl has (its configuration.md).

``60%`` for all caches; or a map from cache ids (``all``, ``0,2-3``) to shares; the share of a cache may be a map of
``unified``, ``code`` and ``data``, that of memory bandwidth a list with one share for each unit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from re import fullmatch
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from criproxy.model.controls import RdtAllocation
from criproxy.model.cpuset import parse_cpuset
from criproxy.placement.classes.amounts import BANDWIDTH_SHARE, CACHE_SHARE

ALL = "all"
_PARTS = {"unified": "", "code": "CODE", "data": "DATA"}
_MBPS = "MBps"
_MAX_MBPS = (1 << 32) - 1
"""What the kernel takes, and shows where nothing is limited; configurations have 4000000000MBps for it."""
_CACHE = "a share of a cache such as 60%, 50-60%, bits 0-3 or 0xf0"
_BANDWIDTH = "a share of memory bandwidth such as 50% or 1000MBps"


@dataclass(frozen=True, slots=True)
class Share:
    """One share."""

    ids: str
    """Of caches, in kernel notation, or all."""
    part: str
    """Empty, CODE or DATA."""
    text: str


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a class or partition of one resource."""

    written: object
    """As in the policy file."""
    shares: tuple[Share, ...]

    def allocations(self, resource: str) -> Iterator[RdtAllocation]:
        """Yield them as allocations of *resource*: L2, L3 or MB."""
        for each in self.shares:
            yield RdtAllocation(resource=f"{resource}{each.part}", ids=each.ids, share=each.text)


def _by_ids(value: object, shares: Callable[[str, object], Iterator[Share]]) -> Shares:
    if isinstance(value, Shares):
        return value
    entries = value.items() if isinstance(value, Mapping) else [(ALL, value)]
    return Shares(value, tuple(share for ids, each in entries for share in shares(_ids(ids), each)))


def _ids(ids: object) -> str:
    text = str(ids).strip()
    try:
        known = text == ALL or bool(parse_cpuset(text))
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"must have all, or ids of caches such as 0,2-3, before each share, not {text!r:.40}")
    return text


def _cache_shares(ids: str, value: object) -> Iterator[Share]:
    parts = value if isinstance(value, Mapping) else {"unified": value}
    if unknown := next((name for name in parts if name not in _PARTS), None):
        raise ValueError(f"a cache has unified, code and data, and no {unknown!r:.40}")
    if ("code" in parts) != ("data" in parts):
        raise ValueError("needs both code and data, or neither")
    for name, share in parts.items():
        if not isinstance(share, str) or not fullmatch(CACHE_SHARE, share.strip()):
            raise ValueError(f"must be {_CACHE}, not {share!r:.40}")
        _check_cache_share(share.strip())
        yield Share(ids, _PARTS[name], share.strip())


def _check_cache_share(text: str) -> None:
    """Check what only numbers show.

    Raises:
        ValueError: it is nothing, or more than there is, or has a gap.
    """
    if text.endswith("%"):
        low, _, high = text[:-1].rpartition("-")
        if not int(low or 0) < int(high) <= 100:
            raise ValueError(f"{text} must be a percentage from 1 to 100, or a range in 0-100%")
        return
    bits = int(text, 16) if text.startswith("0x") else sum(1 << bit for bit in parse_cpuset(text))
    if not bits or bits >> 64:
        raise ValueError(f"{text} names no bit, or more than 64")
    if bits & (bits + (bits & -bits)):
        raise ValueError(f"{text} has a gap: the bits of a share must be next to each other")


def _bandwidth_shares(ids: str, value: object) -> Iterator[Share]:
    listed = value if isinstance(value, list | tuple) else [value]
    units = set()
    for share in listed:
        if not isinstance(share, str) or not fullmatch(BANDWIDTH_SHARE, share.strip()):
            raise ValueError(f"must be {_BANDWIDTH}, not {share!r:.40}")
        text = share.strip()
        number = int(text.removesuffix("%").removesuffix(_MBPS))
        if not 0 < number <= (100 if text.endswith("%") else _MAX_MBPS):
            raise ValueError(f"{text} must be above 0, and at most 100% or {_MAX_MBPS}MBps")
        if text.endswith(_MBPS) in units:
            raise ValueError("has two shares of the same unit: give one in % and one in MBps at most")
        units.add(text.endswith(_MBPS))
        yield Share(ids, "", text)
    if not listed:
        raise ValueError(f"must be {_BANDWIDTH}, not an empty list")


def width(share: str) -> int:
    """Return how many percent of a cache a share is; 0 if that depends on the machine."""
    if not share.endswith("%"):
        return 0
    low, _, high = share[:-1].rpartition("-")
    return int(high) - int(low or 0)


Schema = dict[str, Any]


def _text(share: str) -> Schema:
    return {"type": "string", "pattern": rf"^\s*({share})\s*$"}


def _map_of(*forms: Schema) -> Schema:
    return {"type": "object", "additionalProperties": {"anyOf": [*forms]} if len(forms) > 1 else forms[0]}


_AS_WRITTEN = PlainSerializer(lambda shares: shares.written)
_OF_CACHE, _OF_BANDWIDTH = _text(CACHE_SHARE), _text(BANDWIDTH_SHARE)
_LIST: Schema = {"type": "array", "items": _OF_BANDWIDTH}
_CACHE_FORMS = [_OF_CACHE, _map_of(_OF_CACHE, _map_of(_OF_CACHE))]
_BANDWIDTH_FORMS = [_OF_BANDWIDTH, _LIST, _map_of(_OF_BANDWIDTH, _LIST)]
CacheShares = Annotated[
    Shares,
    BeforeValidator(lambda value: _by_ids(value, _cache_shares)),
    _AS_WRITTEN,
    WithJsonSchema({"anyOf": _CACHE_FORMS, "examples": ["60%", "50-60%", "0-3", "0xf0"]}),
]
BandwidthShares = Annotated[
    Shares,
    BeforeValidator(lambda value: _by_ids(value, _bandwidth_shares)),
    _AS_WRITTEN,
    WithJsonSchema({"anyOf": _BANDWIDTH_FORMS, "examples": ["50%", "1000MBps"]}),
]
