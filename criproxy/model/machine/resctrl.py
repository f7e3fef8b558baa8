"""How resctrl divides the caches and the memory bandwidth of a machine: from shares in classes to masks. Pure.

The rules are those of goresctrl, which CRI-RM, nri-plugins, containerd and CRI-O use. Partitions have no part of a
cache in common; the shares of a class are parts of its partition, and classes of a partition overlap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.model.controls import Rdt, RdtAllocation, RdtClass, RdtPartition
from criproxy.model.cpuset import parse_cpuset

ROOT_CLASS = "system/default"
"""The class that is the root group, which has all other processes of the machine; goresctrl's name."""
UNLIMITED_MBPS = (1 << 32) - 1
"""What the kernel shows with ``mba_MBps`` where nothing is limited."""
_MAX_DIGITS = 10

Schemata = Mapping[str, Mapping[int, int]]
"""Resource as in a schemata file → cache id → mask, or value of MB."""
_Values = dict[str, dict[int, int]]
"""As `Schemata`, while it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What ``info/L3`` and such say of a resource."""

    ids: tuple[int, ...]
    """Of the caches of this level; a machine may have several."""
    mask: int
    """All bits, which are contiguous from bit 0."""
    least_bits: int = 1
    sparse: bool = False
    """Whether masks may have gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """What ``info/MB`` and the mount say of memory bandwidth."""

    ids: tuple[int, ...]
    least: int = 10
    step: int = 10
    """The kernel rounds up to multiples of it."""
    unlimited: int = 100
    """The value without a limit: 100 percent with Intel, and 2048 units of 1/8 GB/s with AMD."""
    in_mbps: bool = False
    """Whether values are MB/s: mounted with ``mba_MBps``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resctrl:
    """What a machine can divide."""

    caches: Mapping[str, Cache] = field(default_factory=dict)
    """By resource: L2, L3; with CDP L3CODE and L3DATA instead of L3."""
    bandwidth: Bandwidth | None = None
    groups: int = 1
    """How many control groups it can have, the root group among them: the smallest ``num_closids``."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Masks and values for a machine."""

    schemata: Mapping[str, Schemata]
    """Class → what its group has, for everything that the machine can divide. Classes with a mistake are missing."""
    mistakes: tuple[str, ...]
    """Sentences: what does not fit this machine, and what would."""


class _Misfit(ValueError):
    """A share that the machine cannot give; the text says which and why."""


def resolve(rdt: Rdt, machine: Resctrl) -> Resolved:
    """Compute what the group of each class has on *machine*; never raises."""
    mistakes: list[str] = []
    bases = {name: _whole(machine) for name in ("", *(partition.name for partition in rdt.partitions))}
    broken = _divide(rdt.partitions, machine, bases, mistakes)
    schemata: dict[str, Schemata] = {}
    for each in rdt.classes:
        if each.partition not in bases:
            mistakes.append(f"RDT class {each.name}: there is no partition {each.partition!r}")
        elif each.partition not in broken:
            try:
                schemata[each.name] = _class(each, bases[each.partition], machine, rdt.optional)
            except _Misfit as error:
                mistakes.append(f"RDT class {each.name}: {error}")
    for partition in rdt.partitions:
        try:
            _known(partition.allocations, machine, rdt.optional)
        except _Misfit as error:
            mistakes.append(f"RDT partition {partition.name}: {error}")
    groups = sum(each.name != ROOT_CLASS for each in rdt.classes)
    if groups >= machine.groups:
        mistakes.append(
            f"{groups} RDT classes need as many control groups of resctrl; this machine has"
            f" {machine.groups - 1} beside the root group"
        )
    return Resolved(schemata, tuple(mistakes))


def lines(schemata: Schemata) -> tuple[str, ...]:
    """Return the lines of a schemata file."""
    return tuple(line(resource, values) for resource, values in sorted(schemata.items()) if values)


def line(resource: str, values: Mapping[int, int]) -> str:
    """Return one line of a schemata file, such as ``L3:0=f0;1=f0``; masks are hexadecimal."""
    form = "d" if resource == "MB" else "x"
    return f"{resource}:{';'.join(f'{id_}={value:{form}}' for id_, value in sorted(values.items()))}"


def parse_lines(text: str) -> Schemata:
    """Parse a schemata file; lines of resources that have other values than masks and numbers are left out."""
    found = {}
    for each in text.splitlines():
        resource, _, rest = each.strip().partition(":")
        base = 10 if resource == "MB" else 16
        try:
            pairs = [part.split("=") for part in rest.split(";")]
            found[resource] = {int(id_): int(value, base) for id_, value in pairs}
        except ValueError:
            continue
    return found


# ---------------------------------------------------------------- partitions


def _whole(machine: Resctrl) -> _Values:
    whole = {resource: dict.fromkeys(cache.ids, cache.mask) for resource, cache in machine.caches.items()}
    if bandwidth := machine.bandwidth:
        unlimited = UNLIMITED_MBPS if bandwidth.in_mbps else bandwidth.unlimited
        whole["MB"] = dict.fromkeys(bandwidth.ids, unlimited)
    return whole


def _divide(
    partitions: tuple[RdtPartition, ...], machine: Resctrl, bases: dict[str, _Values], mistakes: list[str]
) -> set[str]:
    """Put what each of *partitions* has into *bases*; return those that cannot have what they ask."""
    broken = set[str]()
    for resource, cache in machine.caches.items():
        for id_ in cache.ids:
            shares = {each.name: _share(each.allocations, resource, id_) for each in partitions}
            try:
                for name, mask in _masks(shares, cache).items():
                    bases[name][resource][id_] = mask
            except _Misfit as error:
                mistakes.append(f"RDT partitions, {resource} of cache {id_}: {error}")
                broken |= {name for name, share in shares.items() if share}
    if bandwidth := machine.bandwidth:
        for each in partitions:
            try:
                bases[each.name]["MB"] = _bandwidths(each.allocations, bases[each.name]["MB"], bandwidth)
            except _Misfit as error:
                mistakes.append(f"RDT partition {each.name}: {error}")
                broken.add(each.name)
    return broken


def _masks(shares: Mapping[str, str], cache: Cache) -> Mapping[str, int]:
    """Return the mask of each partition that has a share; all have one, or none."""
    asked = {name: share for name, share in shares.items() if share}
    if not asked:
        return {}
    if missing := shares.keys() - asked.keys():
        raise _Misfit(f"all partitions need a share or none; {_names(missing)} has none")
    relative = {name: share for name, share in asked.items() if share.endswith("%")}
    if not relative:
        return _absolute(asked, cache)
    if fixed := asked.keys() - relative.keys():
        raise _Misfit(f"{_names(fixed)} has bits and {_names(relative)} percentages: all need the same kind")
    return _relative(relative, cache)


def _absolute(shares: Mapping[str, str], cache: Cache) -> Mapping[str, int]:
    masks, taken = {}, 0
    for name, share in sorted(shares.items()):
        mask = _mask(share, cache.mask, cache)
        if mask & taken:
            raise _Misfit(f"partition {name} overlaps another one with {share}")
        taken |= mask
        masks[name] = mask
    return masks


def _relative(shares: Mapping[str, str], cache: Cache) -> Mapping[str, int]:
    """Give the smallest share first, since it may be rounded up, and the rest of what all ask to the largest one."""
    percents = {name: _percent(share) for name, share in shares.items()}
    total = sum(percents.values())
    if total > 100:
        raise _Misfit(f"the partitions ask {total}% together")
    whole = cache.mask.bit_length()
    free = free_at_first = max(total * whole // 100, min(whole, cache.least_bits * len(shares)))
    bits: dict[str, int] = {}
    ascending = sorted(percents, key=lambda name: (percents[name], name))
    for name in ascending:
        if free < cache.least_bits:
            raise _Misfit(f"too few bits for {len(shares)} partitions of at least {cache.least_bits}")
        count = max(percents[name] * free // max(1, free * total // free_at_first), cache.least_bits)
        bits[name] = free if name == ascending[-1] else min(count, free)
        free -= bits[name]
    masks, first = {}, 0
    for name in sorted(bits):
        masks[name] = ((1 << bits[name]) - 1) << first
        first += bits[name]
    return masks


# ---------------------------------------------------------------- classes


def _class(each: RdtClass, base: Schemata, machine: Resctrl, optional: tuple[str, ...]) -> Schemata:
    _known(each.allocations, machine, optional)
    schemata: _Values = {}
    for resource, cache in machine.caches.items():
        shares = {id_: _share(each.allocations, resource, id_) for id_ in cache.ids}
        asked = {id_: _mask(share, base[resource][id_], cache) for id_, share in shares.items() if share}
        schemata[resource] = {**base[resource], **asked}
    if machine.bandwidth:
        schemata["MB"] = _bandwidths(each.allocations, base["MB"], machine.bandwidth)
    return schemata


def _known(allocations: Iterable[RdtAllocation], machine: Resctrl, optional: tuple[str, ...]) -> None:
    """Refuse what the machine does not have, unless it may be absent."""
    parts: dict[str, Cache | Bandwidth] = dict(machine.caches)
    if machine.bandwidth:
        parts["MB"] = machine.bandwidth
    for each in allocations:
        level = each.resource[:2]
        there = [name for name in parts if name[:2] == level]
        if not there and level not in optional:
            raise _Misfit(f"resctrl of this machine cannot divide {level}; `optional` takes that")
        if there and each.ids != "all" and _ids(each.ids).isdisjoint(parts[there[0]].ids):
            raise _Misfit(f"{each.resource} has no cache {each.ids} on this machine")
        if there == [level] and each.resource != level and not any(other.resource == level for other in allocations):
            raise _Misfit(
                f"{each.resource} needs resctrl mounted with the option {'cdp' if level == 'L3' else 'cdpl2'}"
            )


def _share(allocations: Iterable[RdtAllocation], resource: str, id_: int) -> str:
    """Return the share for a cache; empty if there is none.

    That for L3CODE counts before that for L3, that for some ids before that for all, a later one before an earlier one.
    """
    found = [
        (each.resource == resource, each.ids != "all", order, each.share)
        for order, each in enumerate(allocations)
        if each.resource in (resource, resource[:2]) and (each.ids == "all" or id_ in _ids(each.ids))
    ]
    return max(found)[3] if found else ""


def _ids(text: str) -> frozenset[int]:
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise _Misfit(f"cache ids: {error}") from None


def _mask(share: str, base: int, cache: Cache) -> int:
    """Return the part *share* of *base*, which is not empty; relative to its lowest bit."""
    lowest = (base & -base).bit_length() - 1
    if share.endswith("%"):
        return _part(share, base.bit_length() - lowest, cache) << lowest
    mask = _bits(share) << lowest
    if mask & ~base:
        raise _Misfit(f"{share} is outside of its part of the cache, which has {(base >> lowest).bit_length()} bits")
    if mask.bit_count() < cache.least_bits:
        raise _Misfit(f"{share} has fewer bits than {cache.least_bits}, the least of this machine")
    behind_a_gap = mask & (mask + (mask & -mask))  # the lowest bit, added, carries through the first run of bits only
    if behind_a_gap and not cache.sparse:
        raise _Misfit(f"{share} has a gap, which this machine does not take")
    return mask


def _part(share: str, bits: int, cache: Cache) -> int:
    """Return the mask of a percentage, or of a range of percentages, of a cache with *bits* bits."""
    first, dash, last = share[:-1].partition("-")
    low, high = (max(1, _number(first, share)), _number(last, share)) if dash else (1, _percent(share))
    if not 1 <= low <= high <= 100:
        raise _Misfit(f"{share} is no percentage and no range of percentages such as 50-60%")
    lowest, highest = (low - 1) * bits // 100, (high - 1) * bits // 100
    gap = max(0, cache.least_bits - (highest - lowest + 1))
    down = min(gap, lowest)
    lowest, highest = lowest - down, highest + gap - down
    return ((1 << (highest - lowest + 1)) - 1) << lowest


def _bits(share: str) -> int:
    if share.startswith("0x"):
        try:
            mask = int(share, 16)
        except ValueError:
            mask = 0
    else:
        mask = sum(1 << bit for bit in _ids(share))
    if not mask:
        raise _Misfit(f"{share!r} is neither a percentage such as 60%, bits such as 0-3, nor a mask such as 0xf0")
    return mask


def _percent(share: str) -> int:
    if "-" in share:
        raise _Misfit(f"{share}: a partition takes a percentage, no range of them")
    percent = _number(share[:-1], share)
    if not 1 <= percent <= 100:
        raise _Misfit(f"{share} is not between 1% and 100%")
    return percent


def _number(text: str, share: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
        raise _Misfit(f"{share!r} is not understood: {text!r} is no number")
    return int(text)


# ---------------------------------------------------------------- memory bandwidth


def _bandwidths(allocations: Iterable[RdtAllocation], base: Mapping[int, int], bandwidth: Bandwidth) -> dict[int, int]:
    return {id_: _bandwidth(allocations, id_, limit, bandwidth) for id_, limit in base.items()}


def _bandwidth(allocations: Iterable[RdtAllocation], id_: int, limit: int, bandwidth: Bandwidth) -> int:
    """Return the value of a class or partition whose values may be up to *limit*."""
    unit = "MBps" if bandwidth.in_mbps else "%"
    of_unit = [each for each in allocations if each.resource == "MB" and each.share.endswith(unit)]
    share = _share(of_unit, "MB", id_)
    if not share:
        if given := _share(allocations, "MB", id_):
            raise _Misfit(f"MB has only {given}, and resctrl is mounted so that it takes values in {unit}")
        return limit
    value = _number(share.removesuffix(unit), share)
    if bandwidth.in_mbps:
        return min(value, limit)
    if not 1 <= value <= 100:
        raise _Misfit(f"MB: {share} is not between 1% and 100%")
    part = max(value * limit // 100, bandwidth.least)
    return min(-(-part // bandwidth.step) * bandwidth.step, bandwidth.unlimited)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
