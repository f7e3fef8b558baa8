"""Sums over all containers, kept from one state of a node to the next.

A decision looks at sums over hundreds of containers of which the decision before has changed one or two: to count these
alone keeps its cost from growing with their number. The sums are the same as if everybody was counted again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from criproxy.model.entries import changed_keys
from criproxy.model.grant import Applied, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container

P = TypeVar("P")
S = TypeVar("S")


class Change(NamedTuple, Generic[P]):
    """A container that counts for something else than before; None: for nothing."""

    key: str
    old: P | None
    new: P | None


@dataclass(frozen=True, slots=True)
class _Counted(Generic[P, S]):
    """The maps that were counted, who was left out, what each container counts for, and the sums of that."""

    grants: Mapping[str, Grant]
    containers: Mapping[str, Container]
    applied: Mapping[str, Applied]
    left_out: str
    parts: Mapping[str, P]
    sums: S


class Sums(Generic[P, S]):
    """Sums of what each container that has a place counts for.

    Several threads may ask at the same time: what was counted is never changed, only replaced.

    Args:
        part_of: by node, key and grant; None for who does not count. It may look at the entries of this container in
            the maps of the node, and at nothing else that changes.
        nothing: the sums where nobody is.
        changed: new sums made of others, for parts that have changed.
    """

    def __init__(
        self,
        part_of: Callable[[Node, str, Grant], P | None],
        nothing: S,
        changed: Callable[[S, Sequence[Change[P]]], S],
    ) -> None:
        self._part_of = part_of
        self._changed = changed
        self._last: _Counted[P, S] = _Counted({}, {}, {}, "", {}, nothing)

    def of(self, node: Node, grants: Mapping[str, Grant], left_out: str = "") -> S:
        """The sums over the layout *grants* of *node*, in which *left_out* does not count."""
        last = self._last
        keys = {last.left_out, left_out, *changed_keys(last.grants, grants)}
        keys.update(changed_keys(last.containers, node.containers), changed_keys(last.applied, node.applied))
        found = [Change(key, last.parts.get(key), self._part(node, grants, key, left_out)) for key in keys]
        changes = [change for change in found if change.old != change.new]
        parts, sums = last.parts, last.sums
        if changes:
            parts, sums = _replaced(parts, changes), self._changed(sums, changes)
        self._last = _Counted(grants, node.containers, node.applied, left_out, parts, sums)
        return sums

    def _part(self, node: Node, grants: Mapping[str, Grant], key: str, left_out: str) -> P | None:
        grant = grants.get(key)
        return None if grant is None or key == left_out else self._part_of(node, key, grant)


def _replaced(parts: Mapping[str, P], changes: Sequence[Change[P]]) -> Mapping[str, P]:
    found = dict(parts)
    for key, _, new in changes:
        if new is None:
            del found[key]
        else:
            found[key] = new
    return found
