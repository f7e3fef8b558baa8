"""Preserved containers: the policy leaves them alone, and they run on all CPUs that are not exclusive.

A policy leaves a container alone by giving it no grant. Without a grant it would run on exclusive CPUs of others, so
it gets one in the pool `PRESERVED`, which is updated whenever the exclusive CPUs change, also under policies that do
not preserve containers. Policies ignore this pool.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, interned, numbered
from criproxy.model.grant import NO_CPUS, PRESERVED, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.rules.quota import restored


def is_left_to_itself(node: Node, policy: Policy) -> bool:
    """Whether a container that *policy* leaves alone gets no grant: under the policy none, if no CPU is exclusive."""
    return isinstance(policy, NonePolicy) and not node.exclusive_cpus


def grant_of_preserved(node: Node, grants: Mapping[str, Grant], container: Container) -> tuple[Grant, str]:
    """Return the grant of a *container* that is left alone; its memory stays, and for a new one the kernel chooses.

    Args:
        node: the node before.
        grants: its new grants.
        container: the one that has none of these.

    Raises:
        NotEnough: every CPU of the machine is exclusive.
    """
    cpus = _unowned(node, grants)
    if not cpus:
        text = f"each CPU that may be used ({format_cpuset(node.topology.cpus)}) is exclusive to another"
        raise NotEnough(f"container {container.title} shares CPUs, but {text}")
    had = node.grants.get(container.key)
    grant = Grant(cpus, NO_CPUS, pool=PRESERVED, quota=restored(had))
    where = f"{container.title} runs on {numbered('CPU', cpus)}, all that are not exclusive"
    return grant.with_memory_of(had) if had else grant, where


def moved_preserved(node: Node, grants: Mapping[str, Grant], keys: Collection[str]) -> dict[str, Grant]:
    """Return the changed grants for the preserved *keys*, for new *grants* made from *node*; reuse equal ones."""
    moved = dict[str, Grant]()
    cpus = interned(_unowned(node, grants)) if keys else NO_CPUS
    for key in keys & grants.keys():
        old, new = node.grants.get(key), grants[key]
        # A policy that does not preserve containers may have placed it in a shared pool.
        new = new if new.is_preserved or old is None else old.with_memory_of(new)
        made = replace(new, cpus=cpus or new.cpus)  # where every CPU is exclusive it stays: it runs on none of them
        made = old if old is not None and old == made else made
        if made is not grants[key]:
            moved[key] = made
    return moved


def preserved(node: Node) -> Node:
    """Return *node* with the preserved containers on all CPUs that are not exclusive."""
    moved = moved_preserved(node, node.grants, node.preserved_keys)
    return node.replace(grants={**node.grants, **moved}) if moved else node


def _unowned(node: Node, grants: Mapping[str, Grant]) -> CpuSet:
    return node.topology.cpus.difference(
        node.kept_cpus, *(each.exclusive for each in grants.values() if each.exclusive)
    )
