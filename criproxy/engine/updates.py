"""What two states of a node mean for the containers in the runtime: updates, and who has to wait for whom."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from criproxy.engine.decision import Update
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node
from criproxy.model.workload import MAY_RUN, Container


class _Change(NamedTuple):
    key: str
    old: Grant
    new: Grant
    lost: CpuSet
    gained: CpuSet


_NOTHING = (NO_CPUS, NO_CPUS)


def updates_between(before: Node, after: Node, arrived: str | None = None) -> tuple[Update, ...]:
    """The updates that turn the layout of *before* into that of *after*, in the order to send them.

    Those that give CPUs up come first. A container that both gives and gets, and keeps some, appears twice: first with
    what it keeps. One that moves altogether appears once, among those that give up.

    Args:
        before: the state whose layout has been sent already.
        after: the state to reach. Containers without a runtime id, new ones and those that left are not updated.
        arrived: the key of a container that just got its id; it is compared with what its create message said.
    """
    changes = sorted(_changes(before, after, arrived), key=lambda change: change.key)
    shrinks = [change for change in changes if change.lost]
    updates = [_shrink(change) for change in shrinks]
    freed = {(change.lost, change.key) for change in shrinks}
    for change in changes:
        if change.gained or not change.lost:
            if change.lost and change.old.cpus.isdisjoint(change.new.cpus):
                continue  # it moved with its first update
            waits = sorted(key for lost, key in freed if key != change.key and not lost.isdisjoint(change.gained))
            updates.append(Update(change.key, change.new, tuple(waits)))
    return tuple(updates)


def blockers(node: Node, key: str) -> tuple[str, ...]:
    """Keys of the containers that must be updated before the container *key* may start.

    These are the others that may run and still have, as applied, a CPU that *key* owns; and *key* itself if its
    own applied set reaches beyond its grant (its CPUs went to somebody else while it was created).
    """
    grant, own = node.grants.get(key), node.applied.get(key)
    waits = [] if grant is None or own is None or own.cpus <= grant.cpus else [key]
    if grant is None or not grant.exclusive:
        return tuple(waits)
    for other, applied in node.applied.items():
        if other != key and _may_run(node.containers[other]) and not applied.cpus.isdisjoint(grant.exclusive):
            waits.append(other)
    return tuple(waits)


def _changes(before: Node, after: Node, arrived: str | None) -> Iterator[_Change]:
    # Most containers share one pool, so most comparisons are of the very same two sets.
    seen: dict[tuple[CpuSet, CpuSet], tuple[CpuSet, CpuSet]] = {}
    for key, new in after.grants.items():
        old = _as_sent(after, key) if key == arrived else before.grants.get(key)
        if old is None or old is new or not _has_id(after.containers[key]):
            continue
        pair = old.cpus, new.cpus
        if pair not in seen:
            seen[pair] = old.cpus - new.cpus, new.cpus - old.cpus
        if seen[pair] != _NOTHING or old != new:
            yield _Change(key, old, new, *seen[pair])


def _as_sent(node: Node, key: str) -> Grant | None:
    """The grant as its create message said it, so far as it differs from the one now."""
    applied, grant = node.applied.get(key), node.grants[key]
    if applied is None or (applied.cpus == grant.cpus and applied.mems == grant.mems):
        return grant
    return Grant(applied.cpus, applied.mems, grant.exclusive & applied.cpus)


def _has_id(container: Container) -> bool:
    return container.key != container.reservation


def _may_run(container: Container) -> bool:
    return container.state in MAY_RUN and _has_id(container)  # a create of unknown outcome was never started


def _shrink(change: _Change) -> Update:
    if not change.gained or change.old.cpus.isdisjoint(change.new.cpus):
        return Update(change.key, change.new)
    kept = change.old.cpus & change.new.cpus
    return Update(change.key, replace(change.old, cpus=kept, exclusive=change.old.exclusive & kept))
