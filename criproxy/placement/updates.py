"""The updates that containers in the runtime need after a step from one node to another."""

from collections.abc import Iterator, Mapping

from criproxy.model.attributes import granted
from criproxy.model.cpuset import CpuSet
from criproxy.model.entries import changed_keys
from criproxy.model.grant import Grant, Layout
from criproxy.model.node import Node
from criproxy.model.text.reason import AboutMemory, Reason
from criproxy.model.workload import Container
from criproxy.placement.decision import Update

_AS_BEFORE = "memory from where it came before"


def updates_between(
    before: Node, after: Node, arrived: str | None = None, *, placed: bool = False
) -> tuple[Update, ...]:
    """Return the containers whose grant in *after* differs from *before*; those that lose CPUs first, then by key.

    Args:
        before: the state whose layout was already sent.
        after: the state to reach. Containers without a runtime id, new ones and removed ones are not updated.
        arrived: the key of a container that just got its id; it is compared with its create message.
        placed: whether to update containers that have a grant only in *after*: they could run on any CPU before.
    """
    losing, others = list[Update](), list[Update]()
    for loses, update in _changes(before, after, arrived, placed=placed):
        (losing if loses else others).append(update)
    return (*losing, *others)


def _changes(before: Node, after: Node, arrived: str | None, *, placed: bool) -> Iterator[tuple[bool, Update]]:
    """Yield each update, sorted by key, and whether its container loses a CPU."""
    # Most containers share one pool, so most comparisons are of the same two objects.
    compared: dict[tuple[CpuSet, CpuSet], tuple[bool, bool]] = {}
    earlier, grants, containers = before.grants, after.grants, after.containers
    for key in sorted(changed_keys(earlier, grants)):
        new = grants.get(key)
        if new is None or not _has_id(containers[key]):
            continue
        old = _as_sent(after, key) if key == arrived else earlier.get(key)
        if old is new:
            continue
        if old is None:
            if placed:
                yield True, Update(key, new)
            continue
        pair = old.cpus, new.cpus
        if pair not in compared:
            compared[pair] = not old.cpus <= new.cpus, old.cpus != new.cpus
        loses, differs = compared[pair]
        if differs or old != new:
            yield loses, Update(key, new)


def _as_sent(node: Node, key: str) -> Grant | None:
    """Return the grant in its create message, if it differs from the present one."""
    applied, grant = node.applied.get(key), node.grants[key]
    if applied is None or applied == granted(grant):
        return grant
    return Grant(applied.cpus, applied.mems, grant.exclusive & applied.cpus)


def _has_id(container: Container) -> bool:
    return container.has_id


def with_memory_as_before(node: Node, grants: Mapping[str, Grant], key: str) -> Mapping[str, Grant]:
    """Return the layout *grants*, made from *node* for *key*, with all memory where it was.

    For events that add or remove no container: the memory of an unplaced container stays where the kernel put it.
    """
    before = node.grants
    nowhere = Grant(frozenset(), frozenset())
    changed = {*changed_keys(before, grants), key}
    kept = {each: grants[each].with_memory_of(before.get(each, nowhere)) for each in changed if each in grants}
    moved = {each: grant for each, grant in kept.items() if grant is not grants[each]}
    return {**grants, **moved} if moved else grants


def reasons_with_memory_as_before(layout: Layout, key: str) -> tuple[Reason, ...]:
    """Return the reasons of the *layout* about the container *key*, with those about memory replaced: it stays."""
    own = layout.reasons_about(key)
    return tuple(Reason(each.key, _AS_BEFORE) if isinstance(each.text, AboutMemory) else each for each in own)
