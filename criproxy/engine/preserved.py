"""Containers that are left alone: whatever happens to the others, these have all CPUs that are not exclusive.

A policy leaves a container alone by giving it no grant. Without any it would run on the CPUs that others have for
themselves; so it gets one here, in the pool `PRESERVED`, which follows what is exclusive from then on, under policies
that know nothing of it, too. No policy counts what is in that pool.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from criproxy.engine.quota import Lifting, restored
from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, interned
from criproxy.model.entries import entries_of, with_entries
from criproxy.model.grant import NO_CPUS, PRESERVED, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.policy.api import Policy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import options_of


class Preserving:
    """Asks another policy, and adds to its answers those who are left alone.

    The policy none leaves all containers alone: then it is only done where CPUs are exclusive, since an earlier policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.options = options_of(policy)
        self._none = isinstance(policy, NonePolicy)
        self._policy = Lifting(policy)

    def place(self, node: Node, container: Container) -> Layout:
        """The policy's layout; raises what it raises.

        Raises:
            NotEnough: the container is left alone, and every CPU of the machine is exclusive.
        """
        layout, key = self._policy.place(node, container), container.key
        if key in layout.grants or (self._none and not node.exclusive_cpus):
            others = node.preserved_keys - {key}
            return _followed(node, layout, others) if others else layout
        return _followed(node, _left_alone(node, layout, container), node.preserved_keys | {key})

    def release(self, node: Node, key: str) -> Layout:
        """The policy's layout without *key*."""
        layout, keys = self._policy.release(node, key), node.preserved_keys - {key}
        return _followed(node, layout, keys) if keys else layout


def preserved(node: Node) -> Node:
    """*node* with the preserved containers on all CPUs that are not exclusive."""
    moved = _moved(node, node.grants, node.preserved_keys)
    return node.replace(grants=with_entries(node.grants, moved)) if moved else node


def _left_alone(node: Node, layout: Layout, container: Container) -> Layout:
    """The *layout* with a place for *container*; its memory stays, and that of a new one is left to the kernel."""
    cpus = node.topology.cpus - _exclusive(layout.grants)
    if not cpus:
        text = f"each CPU that may be used ({format_cpuset(node.topology.cpus)}) is exclusive to another"
        raise NotEnough(f"container {container.title} shares CPUs, but {text}")
    had = node.grants.get(container.key)
    grant = Grant(cpus, NO_CPUS, pool=PRESERVED, quota=restored(had))
    grant = grant.with_memory_of(had) if had else grant
    where = f"{container.title} runs on CPUs {format_cpuset(cpus)}, all that are not exclusive"
    grants = with_entries(entries_of(node.grants, layout.grants), {container.key: grant})
    return replace(layout, grants=grants, reasons=(*layout.reasons, where))


def _followed(node: Node, layout: Layout, keys: Collection[str]) -> Layout:
    moved = _moved(node, layout.grants, keys)
    if not moved:
        return layout
    return replace(layout, grants=with_entries(entries_of(node.grants, layout.grants), moved))


def _moved(node: Node, grants: Mapping[str, Grant], keys: Collection[str]) -> dict[str, Grant]:
    """Of *grants* made of *node*, those of *keys* that must be others; the very same as before where they are alike."""
    cpus, moved = interned(node.topology.cpus - _exclusive(grants) - node.kept_cpus), dict[str, Grant]()
    for key in keys & grants.keys():
        old, new = node.grants.get(key), grants[key]
        # A policy that knows nothing of them may have placed it among those who share.
        new = new if new.is_preserved or old is None else old.with_memory_of(new)
        made = replace(new, cpus=cpus or new.cpus)  # where every CPU is exclusive it stays: it runs on none of them
        made = old if old is not None and old == made else made
        if made is not grants[key]:
            moved[key] = made
    return moved


def _exclusive(grants: Mapping[str, Grant]) -> CpuSet:
    return NO_CPUS.union(*(grant.exclusive for grant in grants.values() if grant.exclusive))
