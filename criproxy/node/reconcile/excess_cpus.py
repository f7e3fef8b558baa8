"""Which containers may still be running on CPUs that they must give up, and thereby block the start of others."""

from collections import Counter
from dataclasses import dataclass, field

from criproxy.model.attributes import in_place
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node, changed_keys
from criproxy.node.in_flight import InFlight


@dataclass(slots=True)
class ExcessCpus:
    """CPUs beyond their grant on which containers may be running.

    Updated from node to node at a cost that depends only on the changes, because it is needed after every event.
    """

    in_flight: InFlight = field(default_factory=InFlight)
    """Where containers may be running in addition to what is applied."""
    by_key: dict[str, CpuSet] = field(default_factory=dict)
    """By container key; containers without such CPUs are omitted."""
    _sets: Counter[CpuSet] = field(default_factory=Counter)
    """Values of `by_key` → number of containers. They are few: shared containers move together."""
    _node: Node | None = None

    def of(self, node: Node) -> "ExcessCpus":
        """Update it for *node* and what is in flight now, and return it."""
        before, keys = self._node, set(self.in_flight.changed())
        if node is before and not keys:
            return self
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
        """Return all CPUs beyond their grants on which containers other than *key* may be running."""
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


def blockers_of(node: Node, key: str, over: ExcessCpus) -> list[str]:
    """Return the keys of the other containers that may still run on CPUs which they must give up and *key* gets."""
    if key not in node.grants or over.others(key).isdisjoint(node.grants[key].cpus):
        return []
    return [other for other in over.by_key if is_blocking(node, key, over, other)]


def is_blocking(node: Node, key: str, over: ExcessCpus, other: str) -> bool:
    """Whether *other* is one of the `blockers_of` *key*."""
    if other == key or key not in node.grants:
        return False
    return not over.by_key.get(other, NO_CPUS).isdisjoint(node.grants[key].cpus)


def owners_of(node: Node, key: str, in_flight: InFlight) -> list[str]:
    """Return the keys of the other containers that may be running and whose CPUs *key* would have if it started now."""
    beyond = in_flight.once_started(node, key) - node.grants[key].cpus
    if not beyond:
        return []
    theirs = (other for other, grant in node.grants.items() if other != key and grant.cpus & beyond)
    return [other for other in theirs if in_flight.cpus(node, other)]


def rests(node: Node, key: str, in_flight: InFlight) -> bool:
    """Whether the container *key*, which has a grant, is known to have just that, as after most creates."""
    return in_place(node.grants[key], node.applied.get(key)) and not in_flight.is_unread(key)
