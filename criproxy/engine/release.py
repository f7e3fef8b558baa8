"""A release: what it does to a node, what a node does while it is released, and what became of its containers.

Each container is granted the whole machine and loses that grant as soon as it is applied: so what is left of a release
is in `Node.grants`, over restarts too, and a container that was released is not touched any more. What it has is still
followed, for the check. What it had before is in `Node.former`: it goes back there when the release ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from criproxy.engine.decision import Decision, Update
from criproxy.engine.updates import updates_between
from criproxy.model.cpuset import format_cpuset
from criproxy.model.entries import without
from criproxy.model.grant import PRESERVED, Applied, CpuQuota, Grant, Layout, in_place
from criproxy.model.node import Node
from criproxy.model.notices import Trouble, Values
from criproxy.model.reason import Reason
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, ContainerState, Miss

BY_NONE = "the policy is none"
"""Why a node was released by its policy: nobody has asked for that, and nobody checks what others make of it."""


class LetGo:
    """The policy of a released node: it places no container, and leaves the grants of those not yet released."""

    def place(self, node: Node, container: Container) -> Layout:
        """The same layout: *container* gets no grant."""
        return Layout(node.grants, (f"{container.title} is left alone: {node.released}",))

    def release(self, node: Node, key: str) -> Layout:
        """The layout without *key*."""
        return Layout({other: grant for other, grant in node.grants.items() if other != key})


LET_GO = LetGo()
_UNPLACED = {
    Miss.FAILED: "criproxy failed when it was created",
    Miss.BYPASSED: "the policy was not asked where to place it, and is asked as soon as it can be",
    Miss.UNFIT: "the policy has no place for it",
}


def release(node: Node, reason: str, configuration: str = "") -> Decision:
    """Unpin all containers: what is applied is forgotten, so that each is updated and its cgroup read once more.

    Containers that are only watched, or must not be updated, stay as they are. The *configuration* in force, if it
    is given, does not end the release.
    """
    whole = Grant(node.topology.cpus, node.topology.mems)
    stays = (key for key, each in node.containers.items() if node.is_watched(key) or each.stays)
    watched = {key: node.applied[key] for key in stays if key in node.applied}
    alive = (key for key, container in node.containers.items() if container.state is not ContainerState.EXITED)
    grants = {key: _freed(node, key, whole) for key in alive if key not in watched} if whole.cpus else {}
    updates = tuple(Update(key, grants[key]) for key in sorted(grants) if node.containers[key].has_id)
    after = node.replace(
        grants=grants,
        applied=watched,
        released=reason,
        configuration=configuration or node.configuration,
        kept={},
        former=_former(node, grants),
    )
    text = f"{len(grants)} containers may run on all CPUs and no container is placed: {reason}"
    return Decision(after, updates, (Reason(None, text),))


def _former(node: Node, freed: Iterable[str]) -> Mapping[str, Grant]:
    """What each of those *freed* had: on a node that was released already, what it had before that."""
    had = node.former if node.released else {**node.grants, **node.former}
    return {key: had[key] for key in freed if key in had}


def as_before_release(node: Node) -> Node:
    """The node with each container that was released where it was, unless CPUs or memory nodes of that are gone."""
    back = {key: node.former[key] for key in _movable(node) if _is_there(node.topology, node.former[key])}
    return without_former(node.replace(grants={**node.grants, **back}))


def without_former(node: Node) -> Node:
    """The node that remembers no place from before a release; who was found and has none now is not only watched."""
    nowhere = [key for key in _movable(node) if key not in node.grants]
    return node.replace(former={}, applied=without(node.applied, nowhere) if nowhere else None)


def _movable(node: Node) -> list[str]:
    """The released containers that may be moved."""
    return [key for key in node.former if key in node.containers and not node.containers[key].stays]


def before_release(node: Node, key: str, now: Applied) -> Applied | None:
    """What the container *key*, which has this *now*, had before the release; None where that is not known."""
    if not node.released or (had := node.former.get(key)) is None:
        return None
    return Applied(had.cpus, had.mems or now.mems, now.lifted)


def _is_there(topology: Topology, grant: Grant) -> bool:
    """Whether the machine has all that *grant* names."""
    mems = grant.mems | grant.home_mems
    return grant.cpus | grant.exclusive <= topology.cpus and (not mems or mems <= topology.mems)


def _freed(node: Node, key: str, whole: Grant) -> Grant:
    """The *whole* machine for the container *key*, with the CPU limit that it asked for.

    One of ours of which nothing is known any more may have lost that; one that has a place is known.
    """
    old, container = node.grants.get(key), node.containers[key]
    may_be_lifted = bool(container.reservation) if old is None else old.quota is not CpuQuota.LEFT
    if old is not None and old.is_preserved:
        return replace(whole, pool=PRESERVED)
    if container.asked_quota is None or not may_be_lifted:
        return whole
    return replace(whole, quota=CpuQuota.RESTORED)


def still_released(node: Node, topology: Topology) -> Decision:
    """A released node on the machine *topology*: who is left gets all of that one, as does who had all before."""
    whole = {quota: Grant(topology.cpus, topology.mems, quota=quota) for quota in CpuQuota}
    grants = {
        key: replace(whole[grant.quota], pool=PRESERVED) if grant.is_preserved else whole[grant.quota]
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
    """A released node after *applied* was seen of *key*: if that is the whole machine, the container is done with."""
    grant = node.grants.get(key)
    if grant is None and key not in node.applied:
        return node
    if grant is None or not in_place(grant, applied):
        return node.replace(applied={**node.applied, key: applied})
    known = {other: has for other, has in node.applied.items() if other != key}
    is_ours = key in node.former or node.containers[key].reservation  # another one would be taken for a watched one
    if is_ours and node.released != BY_NONE:
        known[key] = applied
    return node.replace(grants={other: kept for other, kept in node.grants.items() if other != key}, applied=known)


def successor(node: Node, container: Container) -> Container | None:
    """*container* as it is on *node*, under its id if it had none; None if it has ended."""
    found = node.containers.get(container.key)
    if found is None and not container.has_id:
        found = next((each for each in node.containers.values() if each.reservation == container.reservation), None)
    return None if found is None or found.state is ContainerState.EXITED else found


def is_settled(node: Node, key: str) -> bool:
    """Whether nothing is left to be done for the container *key*: it is released, or in its place."""
    grant = node.grants.get(key)
    return grant is None or (not node.released and in_place(grant, node.applied.get(key)))


def outcome_of(container: Container, before: Node, node: Node, settled: str, troubles: Mapping[str, Trouble]) -> Values:
    """What became of one container by a release or its end, as in the answer of ``criproxy release``.

    Args:
        container: as it was right after that.
        before: the node before that.
        node: the node now.
        settled: the word for it if nothing is left to be done.
        troubles: the updates that fail, by container.
    """
    now = successor(node, container)
    had = before.applied.get(container.key) or before.grants.get(container.key)
    row = {"container": container.title, "id": now.key if now else container.key}
    row |= {"cpus_before": format_cpuset(had.cpus) if had else "", "cpus": "", "outcome": settled, "error": ""}
    if now is None:
        return row | {"outcome": "ended"}
    if not is_settled(node, now.key):
        trouble = troubles.get(now.key)
        error = trouble.error if trouble else "its update is under way"
        return row | {"cpus": row["cpus_before"], "outcome": "left", "error": error}
    grant = node.grants.get(now.key)
    row |= {"cpus": format_cpuset(grant.cpus if grant else node.topology.cpus)}
    return row | {"outcome": "shares", "error": _UNPLACED[now.missed.why]} if grant and now.missed else row
