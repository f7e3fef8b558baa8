"""CPUs that containers must give up and may still be running on, and the containers that are in another's way there."""

from collections import Counter
from dataclasses import dataclass, field

from criproxy.control.containers.in_flight import InFlight
from criproxy.model.cpuset import CpuSet
from criproxy.model.entries import changed_keys
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node


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
