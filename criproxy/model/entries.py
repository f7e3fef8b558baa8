"""The maps of a `Node`: each remembers in which entries it differs from the map from which it was derived.

An event changes one or two entries of a node with a thousand containers. Code that follows the changes (store, updates,
containers not in place) calls `changed_keys` instead of comparing a thousand entries.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

V = TypeVar("V")


_GENERATIONS = 32
"""How many changes a map remembers: as many events as may be processed together."""


class Entries(dict[str, V]):
    """A dict that must not be changed once it is part of a node; it equals any dict with the same items."""

    __slots__ = ("_steps", "version")

    def __init__(self, items: Mapping[str, V]) -> None:
        super().__init__(items)
        self.version = object()
        self._steps: tuple[tuple[object, Collection[str]], ...] = ()

    def derived_from(self, base: Mapping[str, V], touched: Collection[str]) -> "Entries[V]":
        """Remember that the map differs from *base* at most in the keys *touched*."""
        if isinstance(base, Entries):
            self._steps = (*base._steps[1 - _GENERATIONS :], (base.version, touched))  # noqa: SLF001 (of the same class)
        return self

    def touched_since(self, base: "Entries[V]") -> Collection[str] | None:
        """Return the keys touched in either map since their common ancestor; None if it is unknown or too old."""
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
    """Return *base* with changed or additional entries."""
    entries = Entries(base)
    entries.update(new)
    return entries.derived_from(base, tuple(new))


def renamed(base: Mapping[str, V], old: str, new: str, value: V | None = None) -> Entries[V]:
    """Return *base* with the entry *old*, if it exists, under the key *new* at the end, maybe with another value."""
    entries = without(base, (old,))
    if old in base:
        entries[new] = base[old] if value is None else value
    return entries.derived_from(base, (old, new))


def entries_of(base: Mapping[str, V], changed: Mapping[str, V]) -> Entries[V]:
    """Return *changed*, which was derived from *base*, as a map that remembers the differences."""
    if isinstance(changed, Entries) and isinstance(base, Entries) and changed.touched_since(base) is not None:
        return changed
    return Entries(changed).derived_from(base, changed_keys(base, changed))


def without(base: Mapping[str, V], keys: Collection[str]) -> Entries[V]:
    """Return *base* without *keys*, some of which may be missing."""
    entries = Entries(base)  # a complete copy is much cheaper than a filter
    for key in keys:
        if entries and next(reversed(entries)) == key:
            entries.popitem()  # leaves no hole, which would make the next copy five times slower
        else:
            entries.pop(key, None)
    return entries.derived_from(base, keys)


def changed_keys(old: Mapping[str, V], new: Mapping[str, V]) -> Collection[str]:
    """Return the keys whose values are different objects in the two maps, or that only one of them has."""
    if old is new:
        return ()
    if isinstance(old, Entries) and isinstance(new, Entries) and (known := new.touched_since(old)) is not None:
        return known
    get = old.get
    changed = [key for key, value in new.items() if get(key) is not value]
    if len(old) + sum(key not in old for key in changed) != len(new):
        changed += old.keys() - new.keys()
    return changed
