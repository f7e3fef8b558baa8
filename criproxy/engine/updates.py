"""What two states of a node mean for the containers in the runtime."""

from collections.abc import Iterator, Mapping

from criproxy.engine.decision import Update
from criproxy.model.cpuset import CpuSet
from criproxy.model.entries import changed_keys
from criproxy.model.grant import Grant, Layout, granted
from criproxy.model.node import Node
from criproxy.model.reason import AboutMemory, Reason
from criproxy.model.workload import Container

_AS_BEFORE = "memory from where it came before"


def updates_between(
    before: Node, after: Node, arrived: str | None = None, *, placed: bool = False
) -> tuple[Update, ...]:
    """The containers whose place in *after* is another than in *before*; those that lose CPUs first, then by key.

    Args:
        before: the state whose layout has been sent already.
        after: the state to reach. Containers without a runtime id, new ones and those that left are not updated.
        arrived: the key of a container that just got its id; it is compared with what its create message said.
        placed: a container with a place in *after* only ran before on any CPU, and is updated.
    """
    losing, others = list[Update](), list[Update]()
    for loses, update in _changes(before, after, arrived, placed=placed):
        (losing if loses else others).append(update)
    return (*losing, *others)


def _changes(before: Node, after: Node, arrived: str | None, *, placed: bool) -> Iterator[tuple[bool, Update]]:
    """Each update by key, and whether its container loses a CPU."""
    # Most containers share one pool, so most comparisons are of the very same two sets.
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
    """The grant as its create message said it, so far as it differs from the one now."""
    applied, grant = node.applied.get(key), node.grants[key]
    if applied is None or applied == granted(grant):
        return grant
    return Grant(applied.cpus, applied.mems, grant.exclusive & applied.cpus)


def _has_id(container: Container) -> bool:
    return container.has_id


def with_memory_as_before(node: Node, grants: Mapping[str, Grant], key: str) -> Mapping[str, Grant]:
    """The layout *grants*, made of *node* for *key*, with all memory where it was.

    For events at which no container comes or goes: the memory of an unplaced container stays where the kernel has it.
    """
    before = node.grants
    nowhere = Grant(frozenset(), frozenset())
    changed = {*changed_keys(before, grants), key}
    kept = {each: grants[each].with_memory_of(before.get(each, nowhere)) for each in changed if each in grants}
    moved = {each: grant for each, grant in kept.items() if grant is not grants[each]}
    return {**grants, **moved} if moved else grants


def reasons_with_memory_as_before(layout: Layout, key: str) -> tuple[Reason, ...]:
    """Those of the *layout* about the container *key*; what it says of memory does not happen then."""
    own = layout.reasons_about(key)
    return tuple(Reason(each.key, _AS_BEFORE) if isinstance(each.text, AboutMemory) else each for each in own)
