"""Which cpuset a container may be given at this moment: its grant, less what others still have to give up.

Nothing but the node decides it. It is asked again after every change, so the order of updates, shrinks before the
grows that need them, follows from the state and survives failures, retries and restarts.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from criproxy.control.containers.in_flight import InFlight
from criproxy.model.cpuset import CpuSet
from criproxy.model.entries import changed_keys
from criproxy.model.grant import NO_CPUS, Applied, CpuQuota, Grant, in_place
from criproxy.model.node import Node
from criproxy.model.resources import LIFTED_US, CfsQuota


@dataclass(slots=True)
class ExcessCpus:
    """CPUs beyond their grant that containers may be running on; nothing at rest.

    Kept up to date from node to node, at the cost of what changed, because it is asked for after every event.
    """

    in_flight: InFlight = field(default_factory=InFlight)
    """Where containers may be running beside what is applied."""
    by_key: dict[str, CpuSet] = field(default_factory=dict)
    """By container key; those that have none are not in it."""
    _sets: Counter[CpuSet] = field(default_factory=Counter)
    """Values of `by_key` → how many have it. They are few: containers that share move alike."""
    _node: Node | None = None

    def of(self, node: Node) -> "ExcessCpus":
        """Bring it up to date with *node* and with what is in flight now, and return it."""
        before, keys = self._node, set(self.in_flight.changed())
        if before is None or before.topology is not node.topology:
            self.by_key, self._sets = {}, Counter()
            keys.update(node.grants)
        elif node is not before:
            keys.update(
                changed_keys(before.grants, node.grants),
                changed_keys(before.applied, node.applied),
                changed_keys(before.containers, node.containers),
            )
        self._node = node
        for key in keys:
            self._set(key, self._beyond(node, key))
        return self

    def others(self, key: str) -> CpuSet:
        """All CPUs on which containers other than *key* may be running without a right to."""
        own = self.by_key.get(key)
        return NO_CPUS.union(*(cpus for cpus, count in self._sets.items() if cpus != own or count > 1))

    def _beyond(self, node: Node, key: str) -> CpuSet:
        if (grant := node.grants.get(key)) is None:
            return NO_CPUS
        cpus = self.in_flight.cpus(node, key)
        return NO_CPUS if cpus is grant.cpus else cpus - grant.cpus

    def _set(self, key: str, cpus: CpuSet) -> None:
        if old := self.by_key.pop(key, NO_CPUS):
            self._sets[old] -= 1
            if not self._sets[old]:
                del self._sets[old]
        if cpus:
            self.by_key[key] = cpus
            self._sets[cpus] += 1


def target(node: Node, key: str, over: ExcessCpus) -> Applied | None:
    """What to set for the container *key* now; None while it has to wait for others or is where it belongs.

    A container that only gets CPUs waits until all of them are free. One that gives some up does so at once: it goes
    to the part of its grant that is free or where it is anyway, or, if nothing of it is, to the CPUs that are not
    exclusive: best to those that no other container has to leave, but if there are none, to all of them. Otherwise
    containers that change places would wait for each other for ever.

    A quota is given back at once, and lifted as soon as the container runs on its exclusive CPUs alone.
    """
    grant, applied = node.grants[key], node.applied.get(key)
    if in_place(grant, applied):
        return None
    held = over.others(key)
    has = applied.cpus if applied else NO_CPUS
    free = grant.cpus - (held - has)
    if free != grant.cpus and applied is not None and applied.cpus <= grant.cpus:
        wanted = replace(applied, lifted=_lifted(grant, applied.cpus))  # its quota does not have to wait
    else:
        cpus = free or node.shared_cpus - held - (has - grant.cpus) or node.shared_cpus
        wanted = Applied(cpus, grant.mems, _lifted(grant, cpus))
    return wanted if wanted.cpus and wanted != applied else None


def _lifted(grant: Grant, cpus: CpuSet) -> bool:
    """Whether a container that is on *cpus* on its way to its grant has no quota there."""
    return grant.quota is CpuQuota.LIFTED and cpus <= grant.exclusive


def quota_for(node: Node, key: str, wanted: Applied) -> CfsQuota | None:
    """The quota that the container *key* has with *wanted*; None where that is none of our business."""
    asked = node.containers[key].asked_quota
    if asked is None or node.grants[key].quota is CpuQuota.LEFT:
        return None
    return replace(asked, quota_us=LIFTED_US) if wanted.lifted else asked


def in_the_way(node: Node, key: str, over: ExcessCpus) -> list[str]:
    """Keys of the other containers that may still run on CPUs which they must give up and *key* gets."""
    if key not in node.grants or over.others(key).isdisjoint(node.grants[key].cpus):
        return []
    return [other for other in over.by_key if is_in_the_way(node, key, over, other)]


def is_in_the_way(node: Node, key: str, over: ExcessCpus, other: str) -> bool:
    """Whether *other* is one of those."""
    if other == key or key not in node.grants:
        return False
    return not over.by_key.get(other, NO_CPUS).isdisjoint(node.grants[key].cpus)
