"""Asks a policy, and applies its answer to the node with what follows from it: CFS quotas and preserved containers."""

from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Change, Grant, Kept, Reason
from criproxy.model.node import Node, with_changes
from criproxy.model.workload import Container
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.attributes.classes import carried
from criproxy.placement.rules.attributes.quota import quotas
from criproxy.placement.rules.preserved import grant_of_preserved, is_left_to_itself, moved_preserved


@dataclass(frozen=True, slots=True)
class Placed:
    """A container that has been placed."""

    node: Node
    """With its grant, and with those of others that moved."""
    reasons: tuple[Reason, ...] = ()
    shown: Node | None = None
    """The node as the policy saw it; None if the policy did not choose the CPUs."""


def shown(node: Node, free: CpuSet = NO_CPUS, only: CpuSet | None = None) -> Node:
    """Return the node as a policy sees it: kept CPUs count as exclusive to others, except those that are *free*.

    With *only*, no other CPUs can become exclusive. Kept CPUs that a container has again count as its own.
    """
    if not node.kept:
        return node
    free |= node.owned_cpus
    parts = {uid: Kept({name: cpus - free for name, cpus in kept.by_name.items()}) for uid, kept in node.kept.items()}
    barred = None if only is None else node.barred | (node.topology.cpus - only)
    return node.replace(kept={uid: kept for uid, kept in parts.items() if kept.cpus}, barred=barred)


def ask(node: Node, container: Container, policy: Policy, view: Node | None = None) -> Placed:
    """Return *node* after *policy*, which sees it as *view*, has placed *container*; raise what the policy raises."""
    view, key = view or node, container.key
    change = policy.place(view, container)
    news, removed, reasons = dict(change.grants), () if key in change.grants else (key,), change.reasons
    news |= quotas(view, news, {*news, key}, policy, placed=container)
    preserved = view.preserved_keys
    if key not in news and not is_left_to_itself(view, policy):
        news[key], where = grant_of_preserved(view, with_changes(view.grants, news, removed), container)
        reasons, preserved = (*reasons, where), preserved | {key}
    elif key in preserved:
        preserved -= {key}
    if preserved:
        news |= moved_preserved(view, with_changes(view.grants, news, removed), preserved)
    grants = with_changes(view.grants, news, removed)
    return Placed(node.replace(grants=grants), Change(news, reasons).reasons_about(key), view)


def without_grant(node: Node, key: str, policy: Policy) -> Placed:
    """Return *node* without the grant of the container *key*, after others have moved; it must have one."""
    left = node.grants[key]
    return _left(node.replace(grants=with_changes(node.grants, {}, (key,))), left, policy)


def reshared(node: Node, moved: CpuSet, policy: Policy) -> Node:
    """Return the node with shared containers on all shared CPUs, after *moved* CPUs became exclusive or shared."""
    return _left(node, Grant(moved, node.topology.mems, moved), policy).node if moved else node


def _left(node: Node, left: Grant, policy: Policy) -> Placed:
    change = policy.release(node, left)
    news = {**change.grants, **quotas(node, change.grants, change.grants, policy)} if change.grants else {}
    news |= carried(node, news)
    if keys := node.preserved_keys:
        news |= moved_preserved(node, with_changes(node.grants, news), keys)
    if news:
        node = node.replace(grants=with_changes(node.grants, news))
    return Placed(node, change.reasons_about(None))
