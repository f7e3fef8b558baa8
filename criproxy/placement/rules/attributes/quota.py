"""Lifts the CFS quota of containers that run on exclusive CPUs only: there it protects no other, and only throttles.

Policies decide which CPUs are exclusive, and need not handle quotas; they follow from the grants here. With
``cpuQuota: lift`` the quota of a container is lifted when it is placed, if all its CPUs are exclusive. Without the
option, no quota is newly lifted; a lifted quota stays so until the container is placed again or shares CPUs. What
classes say about quotas comes afterwards: see `idle_burst`, and `classes` for CRI-O's annotation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from criproxy.model.cpuset import numbered
from criproxy.model.grant import CpuQuota, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy


def quotas(
    node: Node, grants: Mapping[str, Grant], keys: Iterable[str], policy: Policy, placed: Container | None = None
) -> dict[str, Grant]:
    """Return those of the new *grants* for *keys*, made from *node*, whose quota is to be handled in another way.

    Args:
        node: the node before.
        grants: its new grants.
        keys: of the changed ones.
        policy: has the option.
        placed: the container that is placed; None if one has left.
    """
    found, lifts = dict[str, Grant](), options_of(policy).cpu_quota == "lift"
    for key in keys:
        old, new = node.grants.get(key), grants.get(key)
        is_placed = placed is not None and placed.key == key
        if new is None or (new is old and not is_placed) or _untouched(old, new):
            continue
        container = placed if is_placed else node.containers.get(key)
        if old and old.quota is CpuQuota.LIFTED and old.shares and new.shares and not is_placed:
            quota = CpuQuota.LIFTED  # by its class, which `idle_burst` looks at again
        else:
            quota = _quota(container, old, new, may_lift=_may_lift(old, lifts=lifts, is_placed=is_placed))
        if quota is not new.quota:
            made = replace(new, quota=quota)
            found[key] = old if old is not None and old == made else made
    return found


def _may_lift(old: Grant | None, *, lifts: bool, is_placed: bool) -> bool:
    if is_placed or old is None:
        return lifts
    return old.quota is CpuQuota.LIFTED or (lifts and old.quota is CpuQuota.RESTORED)


def _untouched(old: Grant | None, new: Grant) -> bool:
    """Whether the quota was not and cannot be lifted, because there are no exclusive CPUs: the most frequent case."""
    return not new.exclusive and new.quota is CpuQuota.LEFT and (old is None or old.quota is CpuQuota.LEFT)


def _quota(container: Container | None, old: Grant | None, new: Grant, *, may_lift: bool) -> CpuQuota:
    if container is None or container.asked_quota is None:
        return CpuQuota.LEFT
    if may_lift and owns_all(new):
        return CpuQuota.LIFTED
    return restored(old)


def owns_all(grant: Grant) -> bool:
    """Whether a container runs on exclusive CPUs only: one that also shares CPUs keeps its quota."""
    return bool(grant.exclusive) and not grant.shares


def honest(grant: Grant) -> Grant:
    """Return *grant* with its quota restored if it was lifted but the container now shares CPUs."""
    if grant.quota is CpuQuota.LIFTED and not owns_all(grant):
        return replace(grant, quota=CpuQuota.RESTORED)
    return grant


def restored(old: Grant | None) -> CpuQuota:
    """Return the quota handling for a container that had the grant *old* and will have no exclusive CPUs."""
    return CpuQuota.LEFT if old is None or old.quota is CpuQuota.LEFT else CpuQuota.RESTORED


def quota_reasons(container: Container, old: Grant | None, new: Grant | None) -> tuple[str, ...]:
    """Return a sentence if the quota of *container*, which is placed, is lifted or restored."""
    before, after = old.quota if old else CpuQuota.LEFT, new.quota if new else CpuQuota.LEFT
    if before is after or new is None or (asked := container.asked_quota) is None:
        return ()
    quota, cpus = f"its CFS quota, {asked.quota_us} of {asked.period_us} µs", numbered("CPU", new.cpus)
    if after is CpuQuota.LIFTED:
        return (f"{container.title} has exclusive {cpus}: {quota}, is lifted",)
    return (f"{container.title} gets back {quota}, on {cpus}",)
