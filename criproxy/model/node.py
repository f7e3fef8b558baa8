"""The state of one node: an immutable value that the engine replaces with every event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from criproxy.model.cpuset import CpuSet
from criproxy.model.entries import Entries
from criproxy.model.grant import NO_CPUS, Applied, Grant
from criproxy.model.incident import Incident
from criproxy.model.kept import Kept
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, Pod

_FEW = 8
"""Changed entries; to look at more of them is no quicker than to look at all."""
_FOLLOWING_FROM_GRANTS = frozenset({"owned_cpus", "pods_with_exclusive", "preserved_keys"})
"""What is handed on from one node to the next where no grant that counts for it has changed."""


@dataclass(frozen=True)
class Node:
    """Topology, pods, containers, and their places. The maps are never changed in place."""

    topology: Topology
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """By sandbox id."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    """By container key."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """What each container shall have, by container key; none for those that are not placed."""
    applied: Mapping[str, Applied] = field(default_factory=dict)
    """What each container has as far as we know, by container key: what its create message said, then what was
    read back."""
    released: str = ""
    """Why the node was released, such as by order of a user; empty while containers are placed."""
    configuration: str = ""
    """Of the policy that placed new containers last, so that a restart notices another one: see `LastConfiguration`."""
    kept: Mapping[str, Kept] = field(default_factory=dict)
    """By uid of the pod, the CPUs of its containers that have ended and may come back."""
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    """By `Incident.key`, cards that are unhealthy, and those that were as long as a container is stopped for it."""
    former: Mapping[str, Grant] = field(default_factory=dict)
    """What containers had before `criproxy release`, by container key: they go back there when it ends."""

    @cached_property
    def owned_cpus(self) -> CpuSet:
        """The exclusive CPUs of containers; those of one pod may have theirs together."""
        return NO_CPUS.union(*(grant.exclusive for grant in self.grants.values() if grant.exclusive))

    @cached_property
    def pods_with_exclusive(self) -> frozenset[str]:
        """The sandboxes whose containers own CPUs."""
        owners = (self.containers.get(key) for key, grant in self.grants.items() if grant.exclusive)
        return frozenset(container.pod for container in owners if container)

    @cached_property
    def exclusive_cpus(self) -> CpuSet:
        """CPUs that are not shared: exclusive ones of containers, and those that are kept for a pod."""
        return self.owned_cpus | self.kept_cpus if self.kept else self.owned_cpus

    @property
    def kept_cpus(self) -> CpuSet:
        """CPUs that are kept for pods; their own containers may have some of them."""
        return NO_CPUS.union(*(kept.cpus for kept in self.kept.values()))

    @cached_property
    def preserved_keys(self) -> frozenset[str]:
        """The containers that are left alone: they have all CPUs that are not exclusive."""
        return frozenset(key for key, grant in self.grants.items() if grant.is_preserved)

    @cached_property
    def shared_cpus(self) -> CpuSet:
        """CPUs that pods may use and that are not exclusive: the place of a container when placing it failed."""
        return self.topology.cpus - self.exclusive_cpus

    @cached_property
    def watched_cpus(self) -> CpuSet:
        """CPUs of containers without a place that are left where they are: these cannot become exclusive.

        criproxy did not place them, or an update might take their cards away.

        A container that had one before keeps it, and is not alone there.
        """
        watched = (key for key in self.applied.keys() - self.grants.keys() if self.is_watched(key))
        return NO_CPUS.union(*(self.applied[key].cpus for key in watched)) & self.topology.cpus

    def free_cpus(self, reserved: CpuSet) -> CpuSet:
        """Shared CPUs that can become exclusive, where the policy keeps those *reserved* from that."""
        return self.shared_cpus - reserved - self.topology.isolated_cpus - self.watched_cpus

    def is_watched(self, key: str) -> bool:
        """Whether the container *key* is one of those whose CPUs are `watched_cpus`."""
        container = self.containers.get(key)
        if container is None or (not container.stays and (container.reservation or key in self.former)):
            return False
        return key in self.applied and key not in self.grants

    def containers_of(self, pod: str) -> list[Container]:
        """The containers of the sandbox *pod*, in the order in which they came."""
        return [container for container in self.containers.values() if container.pod == pod]

    def replace(  # noqa: PLR0913 (one for each part)
        self,
        *,
        topology: Topology | None = None,
        pods: Mapping[str, Pod] | None = None,
        containers: Mapping[str, Container] | None = None,
        grants: Mapping[str, Grant] | None = None,
        applied: Mapping[str, Applied] | None = None,
        released: str | None = None,
        configuration: str | None = None,
        kept: Mapping[str, Kept] | None = None,
        incidents: Mapping[str, Incident] | None = None,
        former: Mapping[str, Grant] | None = None,
    ) -> "Node":
        """The same node with other maps, or on another machine."""
        made = Node(
            topology=self.topology if topology is None else topology,
            pods=self.pods if pods is None else pods,
            containers=self.containers if containers is None else containers,
            grants=self.grants if grants is None else grants,
            applied=self.applied if applied is None else applied,
            released=self.released if released is None else released,
            configuration=self.configuration if configuration is None else configuration,
            kept=self.kept if kept is None else kept,
            incidents=self.incidents if incidents is None else incidents,
            former=self.former if former is None else former,
        )
        found = self.__dict__.keys() & _FOLLOWING_FROM_GRANTS
        if found and _alike(self.grants, made.grants):
            made.__dict__.update({name: self.__dict__[name] for name in found})
            if "exclusive_cpus" in self.__dict__ and made.kept is self.kept:
                made.__dict__["exclusive_cpus"] = self.exclusive_cpus
        return made


def _alike(old: Mapping[str, Grant], new: Mapping[str, Grant]) -> bool:
    """Whether one look at the few entries in which they differ says that `_FOLLOWING_FROM_GRANTS` are the same."""
    if old is new:
        return True
    known = new.touched_since(old) if isinstance(old, Entries) and isinstance(new, Entries) else None
    if known is None or len(known) > _FEW:
        return False
    for key in known:
        was, has = old.get(key), new.get(key)
        if (was and (was.exclusive or was.is_preserved)) or (has and (has.exclusive or has.is_preserved)):
            return False
    return True
