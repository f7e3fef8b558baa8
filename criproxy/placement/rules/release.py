"""A release: its effect on the node, the behaviour of a released node, and the outcome for its containers.

Each container is granted the whole machine and loses that grant as soon as it is applied. So `Node.grants` has the
containers that are not released yet, even after a restart, and released containers are not touched any more. Their
applied state is still updated, for the check. Their former grants are in `Node.former`, and return when the release
ends.
"""

from collections.abc import Mapping
from dataclasses import replace

from criproxy.model.attributes import in_place
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import PRESERVED, Applied, CpuQuota, Grant, Reason
from criproxy.model.machine.topology import Topology
from criproxy.model.node import LastConfiguration, Node, without
from criproxy.model.text.notices import Trouble, Values
from criproxy.model.workload import Container, ContainerState, Miss
from criproxy.placement.decision import Decision, Update, updates_between
from criproxy.placement.events import PolicyChanged
from criproxy.placement.rules.attributes.classes import put_back
from criproxy.placement.rules.attributes.quota import owns_all

BY_NONE = "the policy is none"
"""The reason of a release by the policy none: it was not requested, and changes by other programs are not checked."""


_STAYS = "criproxy does not update it, because an update could take its card away"
_UNPLACED = {
    Miss.FAILED: "criproxy failed when it was created",
    Miss.BYPASSED: "the policy was not asked where to place it, and is asked as soon as it can be",
    Miss.UNFIT: "the policy has no place for it",
}


def is_released_by_request(node: Node) -> bool:
    """Whether somebody has released the node, so that no configuration may place its containers."""
    return node.released not in ("", BY_NONE)


def was_requested(node: Node) -> bool:
    """Whether the release that ends was requested; without a daemon, it may have ended before."""
    return bool(node.former) or is_released_by_request(node)


def only_ends_release(node: Node, event: PolicyChanged) -> bool:
    """Whether *event* ends a requested release, and the configuration is still the same."""
    same = LastConfiguration.parse(event.configuration).digest == LastConfiguration.parse(node.configuration).digest
    return same and was_requested(node) and not event.keeps_release and event.back is None


def release(node: Node, reason: str, configuration: str = "") -> Decision:
    """Unpin all containers: drop the applied state, so that each is updated and its cgroup read again.

    Watched containers, and those that must not be updated, stay as they are. The *configuration* in force, if
    given, does not end the release.
    """
    whole = Grant(node.topology.cpus, node.topology.mems)
    alone = (key for key, each in node.containers.items() if node.is_watched(key) or each.stays)
    watched = {key: node.applied[key] for key in alone if key in node.applied}
    alive = (key for key, container in node.containers.items() if container.state is not ContainerState.EXITED)
    grants = {key: _freed(node, key, whole) for key in alive if key not in watched} if whole.cpus else {}
    updates = tuple(Update(key, grants[key]) for key in sorted(grants) if node.containers[key].has_id)
    had = node.former if node.released else {**node.grants, **node.former}
    after = node.replace(
        grants=grants,
        applied=watched,
        released=reason,
        configuration=configuration or node.configuration,
        kept={},
        former={key: had[key] for key in (*grants, *staying(node)) if key in had},
    )
    text = f"{len(grants)} containers may run on all CPUs and no container is placed: {reason}"
    return Decision(after, updates, (Reason(None, text),))


def as_before_release(node: Node) -> Node:
    """Return the node with each released container on its former grant, if all its CPUs and memory nodes exist.

    One that must not be updated has it again if it is still there: it never left.
    """
    still = [key for key in staying(node) if key in node.former and is_still_on(node, key, node.former[key])]
    back = {key: node.former[key] for key in [*_movable(node), *still] if is_there(node.topology, node.former[key])}
    return without_former(node.replace(grants={**node.grants, **back}))


def without_former(node: Node) -> Node:
    """Return the node without grants from before a release; containers without a grant do not count as watched."""
    nowhere = [key for key in _movable(node) if key not in node.grants]
    return node.replace(former={}, applied=without(node.applied, nowhere) if nowhere else None)


def staying(node: Node) -> list[str]:
    """Return the containers that have not ended and must not be updated: a release leaves them where they are."""
    return [key for key, each in node.containers.items() if each.stays and each.state is not ContainerState.EXITED]


def is_still_on(node: Node, key: str, grant: Grant) -> bool:
    """Whether the container *key*, which must not be updated, has the exclusive CPUs of its former *grant* for itself.

    A shared grant does not return: other containers get CPUs of their own where they like, and it could not follow.
    """
    return owns_all(grant) and in_place(grant, node.applied.get(key)) and not grant.exclusive & node.owned_cpus


def _movable(node: Node) -> list[str]:
    """Return the released containers that may be moved."""
    return [key for key in node.former if key in node.containers and not node.containers[key].stays]


def before_release(node: Node, key: str, now: Applied) -> Applied | None:
    """Return what the container *key*, which has *now*, had before the release; None if unknown."""
    if not node.released or (had := node.former.get(key)) is None:
        return None
    return replace(now, cpus=had.cpus, mems=had.mems or now.mems)


def is_there(topology: Topology, grant: Grant) -> bool:
    """Whether all CPUs and memory nodes of *grant* exist on the machine."""
    mems = grant.mems | grant.home_mems
    return grant.cpus | grant.exclusive <= topology.cpus and (not mems or mems <= topology.mems)


def _freed(node: Node, key: str, whole: Grant) -> Grant:
    """Return a grant of the *whole* machine for the container *key*, with its requested CPU limit.

    If criproxy placed a container but its grant is unknown, its quota may have been lifted.
    """
    old, container = node.grants.get(key), node.containers[key]
    may_be_lifted = bool(container.reservation) if old is None else old.quota is not CpuQuota.LEFT
    if old is not None and old.controls.values:
        whole = replace(whole, controls=put_back(old.controls, container, node.topology))
    if old is not None and old.is_preserved:
        return replace(whole, pool=PRESERVED)
    if container.asked_quota is None or not may_be_lifted:
        return whole
    return replace(whole, quota=CpuQuota.RESTORED)


def still_released(node: Node, topology: Topology) -> Decision:
    """Switch a released node to *topology*: containers not released yet, and those that had all CPUs, get all CPUs."""
    whole = {quota: Grant(topology.cpus, topology.mems, quota=quota) for quota in CpuQuota}
    grants = {
        key: replace(whole[grant.quota], pool=PRESERVED if grant.is_preserved else "", controls=grant.controls)
        for key, grant in node.grants.items()
    }
    free = (key for key in node.applied.keys() - node.grants.keys() if not node.is_watched(key))
    had_all = (key for key in free if node.applied[key].cpus >= node.topology.cpus)
    grants |= {key: whole[CpuQuota.LEFT] for key in had_all if not node.applied[key].cpus >= topology.cpus}
    if topology == node.topology and grants == node.grants:
        return Decision(node)
    after = node.replace(topology=topology, grants=grants)
    return Decision(after, updates_between(node, after, placed=True))


def let_go(node: Node, key: str, applied: Applied) -> Node:
    """Return a released node after *applied* was read for *key*; if that is the whole machine, drop its grant."""
    grant = node.grants.get(key)
    if grant is None and key not in node.applied:
        return node
    if grant is None or not in_place(grant, applied):
        return node.replace(applied={**node.applied, key: applied})
    known = {other: has for other, has in node.applied.items() if other != key}
    is_ours = key in node.former or node.containers[key].reservation  # others would count as watched
    if is_ours and node.released != BY_NONE:
        known[key] = applied
    return node.replace(grants={other: kept for other, kept in node.grants.items() if other != key}, applied=known)


def successor(node: Node, container: Container) -> Container | None:
    """Return *container* as it is on *node* now, maybe with a new id; None if it has ended."""
    found = node.containers.get(container.key)
    if found is None and not container.has_id:
        found = next((each for each in node.containers.values() if each.reservation == container.reservation), None)
    return None if found is None or found.state is ContainerState.EXITED else found


def is_settled(node: Node, key: str) -> bool:
    """Whether the container *key* needs no more updates: it is released, or has what it was granted."""
    grant = node.grants.get(key)
    return grant is None or (not node.released and in_place(grant, node.applied.get(key)))


def pending(container: Container) -> str:
    """Return why *container* may still have what it is to give up, although no update of it has failed."""
    return _STAYS if container.stays else "its update is in progress"


def outcome_of(container: Container, before: Node, node: Node, settled: str, troubles: Mapping[str, Trouble]) -> Values:
    """Return the outcome of a release or its end for one container, as in the answer of ``criproxy release``.

    Args:
        container: the container right after the event.
        before: the node before the event.
        node: the present node.
        settled: the word for a container that needs no more updates.
        troubles: the updates that fail, by container.
    """
    now = successor(node, container)
    had = before.applied.get(container.key) or before.grants.get(container.key)
    row = {"container": container.title, "id": now.key if now else container.key}
    row |= {"cpus_before": format_cpuset(had.cpus) if had else "", "cpus": "", "outcome": settled, "error": ""}
    if now is None:
        return row | {"outcome": "ended"}
    if node.released and now.stays:
        return row | {"cpus": row["cpus_before"], "outcome": "stays", "error": pending(now)}
    if not is_settled(node, now.key):
        trouble = troubles.get(now.key)
        error = trouble.error if trouble else pending(now)
        return row | {"cpus": row["cpus_before"], "outcome": "left", "error": error}
    grant = node.grants.get(now.key)
    row |= {"cpus": format_cpuset(grant.cpus if grant else node.topology.cpus)}
    return row | {"outcome": "shares", "error": _UNPLACED[now.missed.why]} if grant and now.missed else row
