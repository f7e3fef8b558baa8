"""Changes of a container's cpuset by another program: whether to correct them, and whether they do harm."""

from criproxy.model.grant import Applied, in_place
from criproxy.model.node import Node


def is_foreign(before: Node, key: str, has: Applied) -> bool:
    """Whether another program wrote what *key* has: it is neither what criproxy wrote nor the online part of that."""
    grant, applied = before.grants[key], before.applied.get(key)
    if applied is None or in_place(grant, has):
        return False
    left = Applied(applied.cpus & before.topology.cpus, applied.mems & before.topology.mems)
    return has.lifted != applied.lifted or not any(has.has_sets_of(ours, grant.mems) for ours in (applied, left))


def does_harm(node: Node, key: str, has: Applied) -> bool:
    """Whether exclusive CPUs are affected, which is always corrected at once. A quota harms no other container."""
    own, should = node.grants[key].exclusive, node.applied[key]
    if (has.cpus, has.mems) == (should.cpus, should.mems):
        return False
    return bool(own) or not has.cpus.isdisjoint(node.exclusive_cpus - own)
