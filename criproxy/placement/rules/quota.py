"""Lifts the CFS quota of containers that run on exclusive CPUs only: there it protects no other, and only throttles.

Policies decide which CPUs are exclusive, and need not handle quotas; they follow from the layouts here.
"""

from dataclasses import replace

from criproxy.model.cpuset import numbered
from criproxy.model.entries import changed_keys, entries_of, with_entries
from criproxy.model.grant import CpuQuota, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy


class Lifting:
    """Adds the handling of quotas to the answers of another policy.

    With ``cpuQuota: lift`` the quota of a container is lifted when it is placed, if all its CPUs are exclusive. Without
    the option, no quota is newly lifted; a lifted quota stays so until the container is placed again or shares CPUs.
    """

    def __init__(self, policy: Policy) -> None:
        self.options = options_of(policy)
        self._policy = policy
        self._lifts = self.options.cpu_quota == "lift"

    def place(self, node: Node, container: Container) -> Layout:
        """Return the policy's layout; raise what the policy raises."""
        layout = self._policy.place(node, container)
        made = self._with_quotas(node, layout, container)
        reasons = _reasons(container, node.grants.get(container.key), made.grants.get(container.key))
        return replace(made, reasons=(*made.reasons, *reasons)) if reasons else made

    def release(self, node: Node, key: str) -> Layout:
        """Return the policy's layout without *key*."""
        return self._with_quotas(node, self._policy.release(node, key))

    def _with_quotas(self, node: Node, layout: Layout, placed: Container | None = None) -> Layout:
        grants, other = entries_of(node.grants, layout.grants), dict[str, Grant]()
        keys = {*changed_keys(node.grants, grants), *([placed.key] if placed else ())}
        for key in keys & grants.keys():
            old, new = node.grants.get(key), grants[key]
            if _untouched(old, new):
                continue
            container = placed if placed and placed.key == key else node.containers.get(key)
            quota = _quota(container, old, new, may_lift=self._may_lift(container is placed, old))
            if quota is not new.quota:
                made = replace(new, quota=quota)
                other[key] = old if old == made else made
        if not other and grants is layout.grants:
            return layout
        return replace(layout, grants=with_entries(grants, other) if other else grants)

    def _may_lift(self, is_placed: bool, old: Grant | None) -> bool:
        if is_placed or old is None:
            return self._lifts
        return old.quota is CpuQuota.LIFTED or (self._lifts and old.quota is CpuQuota.RESTORED)


def _untouched(old: Grant | None, new: Grant) -> bool:
    """Whether the quota was not and cannot be lifted, because there are no exclusive CPUs: the most frequent case."""
    return not new.exclusive and new.quota is CpuQuota.LEFT and (old is None or old.quota is CpuQuota.LEFT)


def _quota(container: Container | None, old: Grant | None, new: Grant, *, may_lift: bool) -> CpuQuota:
    if container is None or container.asked_quota is None:
        return CpuQuota.LEFT
    if may_lift and owns_all(new):
        return CpuQuota.LIFTED
    return CpuQuota.LEFT if old is None or old.quota is CpuQuota.LEFT else CpuQuota.RESTORED


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


def _reasons(container: Container, old: Grant | None, new: Grant | None) -> tuple[str, ...]:
    before, after = old.quota if old else CpuQuota.LEFT, new.quota if new else CpuQuota.LEFT
    if before is after or new is None or (asked := container.asked_quota) is None:
        return ()
    quota, cpus = f"its CFS quota, {asked.quota_us} of {asked.period_us} µs", numbered("CPU", new.cpus)
    if after is CpuQuota.LIFTED:
        return (f"{container.title} has exclusive {cpus}: {quota}, is lifted",)
    return (f"{container.title} gets back {quota}, on {cpus}",)
