"""Containers that should have more than they have: refused sizes, and creates while the policy was not asked.

A size that the kubelet requests is in force, or refused and remembered, or, after a restart of the container, believed
to be in force by the kubelet: then criproxy applies it as soon as there is room.
"""

from collections.abc import Iterable
from dataclasses import replace

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.workload import MAY_RUN, Container, ContainerState, Desired, Miss, Missed, Sizes
from criproxy.placement.decision import Decision, updates_between
from criproxy.placement.events import DesiredEvent, Promoted, ResizeRefused
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback
from criproxy.placement.rules.memory_room import with_room
from criproxy.placement.rules.pipeline import place
from criproxy.placement.rules.pods import recounted
from criproxy.placement.rules.transitions import ignores


def of_desired(node: Node, event: DesiredEvent, policy: Policy) -> Decision:
    """Apply *event*."""
    if isinstance(event, ResizeRefused):
        return _resize_refused(node, event)
    if isinstance(policy, Fallback) or node.released:
        return Decision(node, key=event.key)  # its desired size is unknown
    return _promoted(node, event.key, policy)


def _resize_refused(node: Node, event: ResizeRefused) -> Decision:
    """Return the node with the refused sizes; if they are refused again, the time of the first refusal stays.

    The kubelet does not repeat a size that it believes to be in force.
    """
    key, sizes = event.key, event.sizes
    container = node.containers.get(key)
    if container is None or ignores(container, ResizeRefused):
        return Decision(node, key=key)
    since_s, before = event.at_s, container.desired
    if before and before.sizes == sizes:
        if before.told or not event.believed:
            return Decision(node, key=key)
        since_s = before.since_s
    desired = Desired(sizes=sizes, since_s=since_s, told=event.believed, in_force=event.believed)
    return Decision(_with(node, replace(container, desired=desired)), key=key)


def as_before(node: Node, new: Container, at_s: float) -> Container | None:
    """Return *new* with the CPU size of its former attempt, if the requested size was refused for that attempt.

    Its memory and its quota are those of its create: only CPUs were missing.
    """
    last = _last_attempt(node, new)
    if last is None or last.desired is None:
        return None
    if last.of_pod and new.asked_quota == last.desired.sizes.cpu_quota:
        new = replace(new, of_pod=True)
    if not new.same_cpu(last.desired.sizes):
        return None
    desired = Desired(sizes=new.sizes, since_s=last.desired.since_s or at_s, told=True)
    return replace(new, cpu_milli=last.cpu_milli, cpu_limit_milli=last.cpu_limit_milli, desired=desired)


def _last_attempt(node: Node, new: Container) -> Container | None:
    """Return the container of the same name and pod, in any sandbox, with the highest attempt below its own."""
    pod = node.pods.get(new.pod)
    sandboxes = {new.pod, *(key for key, other in node.pods.items() if pod and pod.uid and other.uid == pod.uid)}
    siblings = (other for other in node.containers.values() if other.pod in sandboxes and other.name == new.name)
    earlier = (other for other in siblings if other.attempt < new.attempt)
    return max(earlier, key=lambda other: other.attempt, default=None)


def is_believed(container: Container, sizes: Sizes) -> bool:
    """Whether *sizes* have the CPU size that the kubelet believes to be in force already."""
    desired = container.desired
    return desired is not None and desired.told and container.resized(desired.sizes).same_cpu(sizes)


def with_memory_of(container: Container, sizes: Sizes) -> Container:
    """Return the container with the memory of *sizes*, while it still waits for their CPUs."""
    assert container.desired is not None  # the caller has checked it
    return replace(
        container,
        memory_limit_bytes=sizes.memory_limit_bytes,
        memory_request_bytes=sizes.memory_request_bytes,
        desired=replace(container.desired, sizes=sizes),
    )


def _promoted(node: Node, key: str, policy: Policy) -> Decision:
    """Return the decision that lets the policy place the container *key*, if there is room for it.

    One that missed its place is not done with by that: once it is there, it is placed again, where it is.
    """
    container, grant = node.containers.get(key), node.grants.get(key)
    if container is None or grant is None or ignores(container, Promoted):
        return Decision(node, key=key)
    grows = container.desired is not None and container.desired.told
    asking = container.resized(container.desired.sizes) if container.desired and grows else container
    asking = replace(asking, missed=None)
    known = _with(node, asking)
    try:
        if asking.of_pod:
            known, _ = recounted(known, asking.pod, policy, must=True)
            asking = known.containers[key]
        placed = with_room(known, place(known, asking, policy), asking, policy)
    except Refused:
        return Decision(node, key=key)
    after = placed.node
    if key not in after.grants:  # the policy none
        return Decision(node, key=key)
    if not grows and not container.is_owed_a_place and len(after.grants[key].exclusive) <= len(grant.exclusive):
        return Decision(node, key=key)
    if container.missed and not is_where_granted(after, container):
        after = _with(after, replace(after.containers[key], missed=container.missed))
        if after.grants == node.grants and after.containers == node.containers:
            return Decision(node, key=key)
    return Decision(after, updates_between(node, after), placed.reasons, key)


def is_where_granted(node: Node, container: Container) -> bool:
    """Whether a *container* of the node no longer runs outside of its place, as far as is known.

    Until then it is listed as not placed: its CPUs may still be those of others, and others may be on its own.
    """
    grant, has = node.grants[container.key], node.applied.get(container.key)
    if not (container.missed and container.missed.since_s):
        return True
    if has is None:
        starts_anywhere = container.missed.unseen and container.state is ContainerState.CREATED
        return not starts_anywhere
    return has.cpus <= grant.cpus and not any(_is_on(node, key, grant.exclusive) for key in node.applied)


def _is_on(node: Node, key: str, owned: CpuSet) -> bool:
    """Whether the container *key*, which runs, is to leave CPUs of those that are *owned* by another."""
    container, grant = node.containers.get(key), node.grants.get(key)
    if grant is None or container is None or container.state not in MAY_RUN or not container.has_id:
        return False
    return not owned.isdisjoint(node.applied[key].cpus - grant.cpus)


def to_be_promoted(node: Node, why: Miss, keys: Iterable[str], unseen_since_s: float = 0.0) -> Node:
    """Return the node with the containers *keys* marked as not placed by the policy, because of *why*.

    If criproxy was not asked, *unseen_since_s* is since when they have been where they are; it replaces a time at which
    they were created.
    """
    missed = Missed(why=why, since_s=unseen_since_s, unseen=bool(unseen_since_s))
    known = (node.containers[key] for key in keys if key in node.grants and key in node.containers)
    late = (each for each in known if each.missed is None or (missed.unseen and each.state is ContainerState.CREATED))
    news = {each.key: replace(each, missed=missed) for each in late}
    return node.replace(containers={**node.containers, **news}) if news else node


def _with(node: Node, container: Container) -> Node:
    return node.replace(containers={**node.containers, container.key: container})
