"""Sums over all containers, kept from one state of a node to the next.

A decision looks at sums over hundreds of containers of which the decision before has changed one or two: to count these
alone keeps its cost from growing with their number. The sums are the same as if all containers were counted again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from criproxy.model.grant import Grant
from criproxy.model.node import Node, changed_keys

P = TypeVar("P")
S = TypeVar("S")


class Change(NamedTuple, Generic[P]):
    """A container that counts for something else than before; None: for nothing."""

    key: str
    old: P | None
    new: P | None


class _Layout(NamedTuple):
    """What is counted: the layout *grants* of a node, but for one container."""

    node: Node
    grants: Mapping[str, Grant]
    left_out: str

    def differs_in(self, other: "_Layout", seen: Callable[[Grant], object]) -> Collection[str]:
        """The keys of those that may count for something else in *other*."""
        mine, theirs = self.node, other.node
        old, new = self.grants, other.grants
        maybe = *changed_keys(mine.containers, theirs.containers), *changed_keys(mine.applied, theirs.applied)
        found = {key for key in (self.left_out, other.left_out, *maybe) if key in old or key in new}
        for key in changed_keys(old, new):
            if key not in old or key not in new or seen(old[key]) != seen(new[key]):
                found.add(key)
        return found


class Sums(Generic[P, S]):
    """Sums of what each container that has a place counts for, on one machine.

    Several threads may ask at the same time: what was counted is never changed, only replaced.

    Args:
        part_of: by node, key and grant; None for a container that does not count. It may read the entries of this
            container in the maps of the node, and nothing else that changes.
        seen: what *part_of* looks at of a grant, as something to compare: where a pool gets other CPUs, the grants of
            hundreds change, and most of them count as before.
        nothing: the sums without containers.
        changed: new sums made of others, for parts that have changed.
    """

    def __init__(
        self,
        part_of: Callable[[Node, str, Grant], P | None],
        seen: Callable[[Grant], object],
        nothing: S,
        changed: Callable[[S, Sequence[Change[P]]], S],
    ) -> None:
        self._part_of = part_of
        self._seen = seen
        self._changed = changed
        self._last: tuple[_Layout | None, S] = None, nothing

    def of(self, node: Node, grants: Mapping[str, Grant], left_out: str = "") -> S:
        """The sums over the layout *grants* of *node*, in which *left_out* does not count."""
        (last, sums), now = self._last, _Layout(node, grants, left_out)
        changes = list[Change[P]]()
        for key in last.differs_in(now, self._seen) if last else grants.keys():
            old, new = self._part(last, key) if last else None, self._part(now, key)
            if old != new:
                changes.append(Change(key, old, new))
        if changes:
            sums = self._changed(sums, changes)
        self._last = now, sums
        return sums

    def _part(self, layout: _Layout, key: str) -> P | None:
        grant = layout.grants.get(key)
        return None if grant is None or key == layout.left_out else self._part_of(layout.node, key, grant)
