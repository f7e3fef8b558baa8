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
from criproxy.placement.rules.attributes.quota import restored


def is_left_to_itself(node: Node, policy: Policy) -> bool:
    """Whether a container that *policy* leaves alone gets no grant: under the policy none, if no CPU is exclusive."""
    return isinstance(policy, NonePolicy) and not node.exclusive_cpus


def grant_of_preserved(node: Node, grants: Mapping[str, Grant], container: Container) -> tuple[Grant, str]:
    """Return the grant of a *container* that is left alone, and the reason, a sentence.

    Its memory stays where it is; for a new container, the kernel chooses.

    Args:
        node: the node before.
        grants: its new grants.
        container: has none of *grants*.

    Raises:
        NotEnough: every CPU of the machine is exclusive.
    """
    cpus = _unowned(node, grants)
    if not cpus:
        text = f"each CPU that may be used ({format_cpuset(node.topology.cpus)}) is exclusive to another"
        raise NotEnough(f"container {container.title} shares CPUs, but {text}")
    former = node.grants.get(container.key)
    grant = Grant(cpus, NO_CPUS, pool=PRESERVED, quota=restored(former))
    reason = f"{container.title} runs on {numbered('CPU', cpus)}, all that are not exclusive"
    return grant.with_memory_of(former) if former else grant, reason


def moved_preserved(node: Node, grants: Mapping[str, Grant], keys: Collection[str]) -> dict[str, Grant]:
    """Return the changed grants for the preserved *keys*, for new *grants* made from *node*; reuse equal ones."""
    moved = dict[str, Grant]()
    cpus = interned(_unowned(node, grants)) if keys else NO_CPUS
    for key in keys & grants.keys():
        grant = _with_cpus(cpus, node.grants.get(key), grants[key])
        if grant is not grants[key]:
            moved[key] = grant
    return moved


def _with_cpus(cpus: CpuSet, old: Grant | None, new: Grant) -> Grant:
    """Return the grant of a preserved container on *cpus*; the same object as *old* if it is equal.

    Without *cpus*, every CPU is exclusive to another container: the container keeps its own, none of which is free.
    """
    if old is None:
        return replace(new, cpus=cpus or new.cpus)
    # A policy that does not preserve containers may have placed it in a shared pool.
    preserved_grant = new if new.is_preserved else old.with_memory_of(new)
    grant = replace(preserved_grant, cpus=cpus or preserved_grant.cpus)
    return old if old == grant else grant


def preserved(node: Node) -> Node:
    """Return *node* with the preserved containers on all CPUs that are not exclusive."""
    moved = moved_preserved(node, node.grants, node.preserved_keys)
    return node.replace(grants={**node.grants, **moved}) if moved else node


def _unowned(node: Node, grants: Mapping[str, Grant]) -> CpuSet:
    return node.topology.cpus.difference(
        node.kept_cpus, *(each.exclusive for each in grants.values() if each.exclusive)
    )
