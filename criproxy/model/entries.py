"""The maps of a `Node`, made one of the other: each remembers in what it differs from the one before.

A node with a thousand containers changes by one or two entries with an event. Whoever follows the changes (store,
updates to others, what is not applied yet) asks `changed_keys` instead of comparing a thousand entries.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

V = TypeVar("V")


_GENERATIONS = 32
"""Over how many changes a map remembers its ancestors: as many events as may be followed at once."""


class Entries(dict[str, V]):
    """A dict that is not changed any more once it is part of a node; compares equal to any dict with the same items."""

    __slots__ = ("_steps", "version")

    def __init__(self, items: Mapping[str, V]) -> None:
        super().__init__(items)
        self.version = object()
        self._steps: tuple[tuple[object, Collection[str]], ...] = ()

    def derived_from(self, base: Mapping[str, V], touched: Collection[str]) -> "Entries[V]":
        """Remember that only the keys *touched* may have other values, or be missing, or be new, than in *base*."""
        if isinstance(base, Entries):
            self._steps = (*base._steps[1 - _GENERATIONS :], (base.version, touched))  # noqa: SLF001 (of the same class)
        return self

    def touched_since(self, base: "Entries[V]") -> Collection[str] | None:
        """The keys touched in either since this and *base* were the same map; None if they never were, or long ago."""
        if self._steps and self._steps[-1][0] is base.version:
            return self._steps[-1][1]
        theirs = (*base._steps, (base.version, ()))  # noqa: SLF001 (of the same class)
        place_of = {version: place for place, (version, _) in enumerate(theirs)}
        mine = (*self._steps, (self.version, ()))
        for place in reversed(range(len(mine))):
            if (other := place_of.get(mine[place][0])) is not None:
                return {key for _, touched in (*mine[place:], *theirs[other:]) for key in touched}
        return None


def with_entries(base: Mapping[str, V], new: Mapping[str, V]) -> Entries[V]:
    """*base* with other or more entries."""
    entries = Entries(base)
    entries.update(new)
    return entries.derived_from(base, tuple(new))


def renamed(base: Mapping[str, V], old: str, new: str, value: V | None = None) -> Entries[V]:
    """*base* with the entry *old*, if there is one, under the key *new* at the end, with the same or another value."""
    entries = without(base, (old,))
    if old in base:
        entries[new] = base[old] if value is None else value
    return entries.derived_from(base, (old, new))


def entries_of(base: Mapping[str, V], changed: Mapping[str, V]) -> Entries[V]:
    """*changed*, which was made of *base*, as a map that knows where it differs."""
    if isinstance(changed, Entries) and isinstance(base, Entries) and changed.touched_since(base) is not None:
        return changed
    return Entries(changed).derived_from(base, changed_keys(base, changed))


def without(base: Mapping[str, V], keys: Collection[str]) -> Entries[V]:
    """*base* less *keys*, some of which may not be there."""
    entries = Entries(base)  # copied whole: much cheaper than to look at each
    for key in keys:
        if entries and next(reversed(entries)) == key:
            entries.popitem()  # leaves no hole, which would make the next copy five times slower
        else:
            entries.pop(key, None)
    return entries.derived_from(base, keys)


def changed_keys(old: Mapping[str, V], new: Mapping[str, V]) -> Collection[str]:
    """The keys whose values are not the very same objects in both maps, or that only one of them has."""
    if old is new:
        return ()
    if isinstance(old, Entries) and isinstance(new, Entries) and (known := new.touched_since(old)) is not None:
        return known
    get = old.get
    changed = [key for key, value in new.items() if get(key) is not value]
    if len(old) + sum(key not in old for key in changed) != len(new):
        changed += old.keys() - new.keys()
    return changed
