"""How large a balloon has to be, part by part, and which CPUs it has then."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.placement.alloc.locality import Wants, grow, shrink
from criproxy.placement.policies.balloons.kinds import Catalogue, Kind


def smallest(kind: Kind) -> tuple[int, ...]:
    """The sizes of the leaves of a balloon without containers."""
    if not kind.parts:
        return (kind.type.min_cpus,)
    least = [smallest(part) for part in kind.parts]
    sizes = kind.sizes(kind.type.min_cpus * 1000) if kind.type.min_cpus else None
    return tuple(size for part in least for size in part) if sizes is None else sizes


def with_parts(kind: Kind, counts: Mapping[str, int] | None = None, chosen: Sequence[str] = ()) -> Kind:
    """The type of a balloon: with the parts *chosen*, else with those of which there are the fewest by *counts*."""
    return _with_parts(kind, counts or {}, list(chosen))


def _with_parts(kind: Kind, counts: Mapping[str, int], chosen: list[str]) -> Kind:
    if not kind.parts:
        return kind
    parts: Iterable[Kind] = kind.parts
    if kind.one_of:
        name = chosen.pop(0) if chosen else ""
        named = (part for part in kind.parts if part.name == name)
        rarest = min(kind.parts, key=lambda part: sum(counts.get(one, 0) for one in set(part.family())))
        parts = [next(named, rarest)]
    return replace(kind, parts=tuple(_with_parts(part, counts, chosen) for part in parts))


def resized(catalogue: Catalogue, kind: Kind, home: CpuSet, free: CpuSet, sizes: Sequence[int], also: Wants) -> CpuSet:
    """The CPUs of a balloon whose leaves get these *sizes*, of its present CPUs as many as possible.

    Args:
        catalogue: of the machine.
        kind: of the balloon, with its parts.
        home: its CPUs now.
        free: others that it may take; at least as many as it needs.
        sizes: how many CPUs each leaf gets.
        also: what this balloon wants beside its type: `Wants.near` goes before, the others after what that wants.
            Where a leaf shrinks, only `Wants.rather` counts.
    """
    leaves = kind.leaves
    parts = _parts(leaves, home)
    for place, (leaf, size) in enumerate(zip(leaves, sizes, strict=True)):
        if len(parts[place]) > size:
            tree, wants = catalogue.tree(leaf.wants.spread), replace(leaf.wants, rather=also.rather)
            kept = shrink(tree, parts[place], free, size, wants)
            free |= parts[place] - kept
            parts[place] = kept
    for place, (leaf, size) in enumerate(zip(leaves, sizes, strict=True)):
        near, away, more = also.near + leaf.wants.near, leaf.wants.away + also.away, size - len(parts[place])
        wants, tree = replace(leaf.wants, near=near, away=away, rather=also.rather), catalogue.tree(leaf.wants.spread)
        parts[place] = grow(tree, parts[place], free, min(more, len(free)), wants)
        free -= parts[place]
    return NO_CPUS.union(*parts)


def _parts(leaves: Sequence[Kind], home: CpuSet) -> list[CpuSet]:
    """Which CPUs of a balloon belong to which leaf: each in turn takes one that it likes best."""
    if len(leaves) == 1:
        return [home]
    parts: list[set[int]] = [set() for _ in leaves]
    orders = [iter(sorted(home, key=partial(_dislike, leaf))) for leaf in leaves]
    left = set(home)
    while left:
        full = all(_is_full(leaf, part) for leaf, part in zip(leaves, parts, strict=True))
        for leaf, part, order in zip(leaves, parts, orders, strict=True):
            if left and (full or not _is_full(leaf, part)):
                best = next(cpu for cpu in order if cpu in left)
                left.remove(best)
                part.add(best)
    return [frozenset(part) for part in parts]


def _is_full(leaf: Kind, part: set[int]) -> bool:
    return leaf.max_cpus is not None and len(part) >= leaf.max_cpus


def _dislike(leaf: Kind, cpu: int) -> tuple[tuple[bool, ...], int]:
    return tuple((cpu in cpus) is not wanted for cpus, wanted in leaf.wants.sets()), cpu
