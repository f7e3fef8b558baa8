"""How large a balloon has to be, part by part, and which CPUs it has then."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.placement.alloc.locality import Wants, grow, shrink
from criproxy.placement.policies.balloons.kinds import Catalogue, Kind


@dataclass(frozen=True)
class Shape:
    """A balloon's type and, if that is a composite one, the parts that the balloon has."""

    kind: Kind
    parts: tuple["Shape", ...] = ()

    @cached_property
    def leaves(self) -> tuple[Kind, ...]:
        """The types of the parts that have CPUs of their own; of a simple balloon its own type."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) if self.parts else (self.kind,)

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """The names of parts that others could have been instead of, from the outside to the inside."""
        own = (self.parts[0].kind.name,) if self.kind.one_of and self.parts else ()
        return own + tuple(name for part in self.parts for name in part.chosen)

    @cached_property
    def suffix(self) -> str:
        """What `chosen` adds to its name."""
        return "".join(f"/{name}" for name in self.chosen)

    @cached_property
    def loads(self) -> Mapping[str, str]:
        """What its containers load: classes, each with its level."""
        return {load: level for leaf in self.leaves for load, level in leaf.loads.items()}

    def names(self) -> Iterator[str]:
        """The types of the balloon and of all its parts."""
        yield self.kind.name
        for part in self.parts:
            yield from part.names()

    def sizes(self, milli: int) -> tuple[int, ...] | None:
        """CPUs of each leaf for containers that ask for *milli* in all; None where the type allows no balloon so large.

        The parts of a composite balloon share evenly.
        """
        if not self.parts:
            size = max(self.kind.type.min_cpus, -(-max(milli, 1) // 1000))
            return None if self.kind.max_cpus is not None and size > self.kind.max_cpus else (size,)
        share = -(-max(milli, 1, self.kind.type.min_cpus * 1000) // len(self.parts))
        found: list[int] = []
        for part in self.parts:
            sizes = part.sizes(share)
            if sizes is None:
                return None
            found += sizes
        return None if self.kind.max_cpus is not None and sum(found) > self.kind.max_cpus else tuple(found)

    @cached_property
    def limit(self) -> int | None:
        """How many CPUs it can have at most; None: any number."""
        known = [part.limit for part in self.parts if part.limit is not None]
        limits = [self.kind.max_cpus, min(known) * len(self.parts) if known else None]
        return min((limit for limit in limits if limit is not None), default=None)


def smallest(shape: Shape) -> tuple[int, ...]:
    """The sizes of the leaves of a balloon without containers."""
    if not shape.parts:
        return (shape.kind.type.min_cpus,)
    least = [smallest(part) for part in shape.parts]
    sizes = shape.sizes(shape.kind.type.min_cpus * 1000) if shape.kind.type.min_cpus else None
    return tuple(size for part in least for size in part) if sizes is None else sizes


def shape_of(kind: Kind, counts: Mapping[str, int] | None = None, chosen: Sequence[str] = ()) -> Shape:
    """A balloon's shape: with the parts *chosen*, else with those of which there are the fewest by *counts*."""
    left = list(chosen)
    return _shape(kind, counts or {}, left)


def _shape(kind: Kind, counts: Mapping[str, int], chosen: list[str]) -> Shape:
    parts: Iterable[Kind] = kind.parts
    if kind.one_of and kind.parts:
        name = chosen.pop(0) if chosen else ""
        named = [part for part in kind.parts if part.name == name]
        parts = named or [min(kind.parts, key=lambda part: sum(counts.get(one, 0) for one in set(part.family())))]
        parts = parts[:1]
    return Shape(kind, tuple(_shape(part, counts, chosen) for part in parts))


def resized(
    catalogue: Catalogue, shape: Shape, home: CpuSet, free: CpuSet, sizes: Sequence[int], also: Wants
) -> CpuSet:
    """The CPUs of a balloon whose leaves get these *sizes*, of its present CPUs as many as possible.

    Args:
        catalogue: of the machine.
        shape: of the balloon.
        home: its CPUs now.
        free: others that it may take; at least as many as it needs.
        sizes: how many CPUs each leaf gets.
        also: what this balloon wants beside its type: `Wants.near` goes before, the others after what that wants.
            Where a leaf shrinks, only `Wants.rather` counts.
    """
    leaves = shape.leaves
    parts = _parts(leaves, home)
    for place, (leaf, size) in enumerate(zip(leaves, sizes, strict=True)):
        if len(parts[place]) > size:
            tree, wants = catalogue.tree(leaf.wants), replace(leaf.wants, rather=also.rather)
            kept = shrink(tree, parts[place], free, size, wants)
            free |= parts[place] - kept
            parts[place] = kept
    for place, (leaf, size) in enumerate(zip(leaves, sizes, strict=True)):
        near, away, more = also.near + leaf.wants.near, leaf.wants.away + also.away, size - len(parts[place])
        wants, tree = replace(leaf.wants, near=near, away=away, rather=also.rather), catalogue.tree(leaf.wants)
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
