"""Preserved containers: the policy leaves them alone, and they run on all CPUs that are not exclusive.

A policy leaves a container alone by giving it no grant. Without a grant it would run on exclusive CPUs of others, so
the engine adds one in the pool `PRESERVED`, which is updated whenever the exclusive CPUs change, also under policies
that do not preserve containers. Policies ignore this pool.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, interned, numbered
from criproxy.model.entries import entries_of, with_entries
from criproxy.model.grant import NO_CPUS, PRESERVED, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.rules.quota import Lifting, restored


class Preserving:
    """Adds grants for preserved containers to the answers of another policy.

    The policy none leaves all containers alone: then grants are only added if an earlier policy left exclusive CPUs.
    """

    def __init__(self, policy: Policy) -> None:
        self.options = options_of(policy)
        self._none = isinstance(policy, NonePolicy)
        self._policy = Lifting(policy)

    def place(self, node: Node, container: Container) -> Layout:
        """Return the policy's layout; raise what the policy raises.

        Raises:
            NotEnough: the container is preserved, and every CPU of the machine is exclusive.
        """
        layout, key = self._policy.place(node, container), container.key
        if key in layout.grants or (self._none and not node.exclusive_cpus):
            others = node.preserved_keys - {key}
            return _followed(node, layout, others) if others else layout
        return _followed(node, _left_alone(node, layout, container), node.preserved_keys | {key})

    def release(self, node: Node, key: str) -> Layout:
        """Return the policy's layout without *key*."""
        layout, keys = self._policy.release(node, key), node.preserved_keys - {key}
        return _followed(node, layout, keys) if keys else layout


def preserved(node: Node) -> Node:
    """Return *node* with the preserved containers on all CPUs that are not exclusive."""
    moved = _moved(node, node.grants, node.preserved_keys)
    return node.replace(grants=with_entries(node.grants, moved)) if moved else node


def _left_alone(node: Node, layout: Layout, container: Container) -> Layout:
    """Return the *layout* with a grant for *container*; its memory stays, and for a new one the kernel chooses."""
    cpus = node.topology.cpus - _exclusive(layout.grants)
    if not cpus:
        text = f"each CPU that may be used ({format_cpuset(node.topology.cpus)}) is exclusive to another"
        raise NotEnough(f"container {container.title} shares CPUs, but {text}")
    had = node.grants.get(container.key)
    grant = Grant(cpus, NO_CPUS, pool=PRESERVED, quota=restored(had))
    grant = grant.with_memory_of(had) if had else grant
    where = f"{container.title} runs on {numbered('CPU', cpus)}, all that are not exclusive"
    grants = with_entries(entries_of(node.grants, layout.grants), {container.key: grant})
    return replace(layout, grants=grants, reasons=(*layout.reasons, where))


def _followed(node: Node, layout: Layout, keys: Collection[str]) -> Layout:
    moved = _moved(node, layout.grants, keys)
    if not moved:
        return layout
    return replace(layout, grants=with_entries(entries_of(node.grants, layout.grants), moved))


def _moved(node: Node, grants: Mapping[str, Grant], keys: Collection[str]) -> dict[str, Grant]:
    """Return the changed grants for *keys*, for a layout with *grants* made from *node*; reuse equal grants."""
    cpus, moved = interned(node.topology.cpus - _exclusive(grants) - node.kept_cpus), dict[str, Grant]()
    for key in keys & grants.keys():
        old, new = node.grants.get(key), grants[key]
        # A policy that does not preserve containers may have placed it in a shared pool.
        new = new if new.is_preserved or old is None else old.with_memory_of(new)
        made = replace(new, cpus=cpus or new.cpus)  # where every CPU is exclusive it stays: it runs on none of them
        made = old if old is not None and old == made else made
        if made is not grants[key]:
            moved[key] = made
    return moved


def _exclusive(grants: Mapping[str, Grant]) -> CpuSet:
    return NO_CPUS.union(*(grant.exclusive for grant in grants.values() if grant.exclusive))
