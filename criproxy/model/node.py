"""The state of one node: an immutable value that the engine replaces with every event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from criproxy.model.cpuset import CpuSet
from criproxy.model.entries import Entries
from criproxy.model.grant import NO_CPUS, Applied, Grant, Kept
from criproxy.model.incident import Incident
from criproxy.model.machine.topology import Topology
from criproxy.model.workload import Container, Pod

_FEW = 8
"""The number of changed entries up to which checking them is faster than computing from all entries."""
_FOLLOWING_FROM_GRANTS = frozenset({"owned_cpus", "pods_with_exclusive", "preserved_keys"})
"""Cached properties that the next node inherits if no relevant grant has changed."""


@dataclass(frozen=True)
class Node:
    """Topology, pods, containers, and their grants. The maps are never changed in place."""

    topology: Topology
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """By sandbox id."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    """By container key."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """The desired state of each container, by container key; unplaced containers have none."""
    applied: Mapping[str, Applied] = field(default_factory=dict)
    """The applied state of each container as far as it is known, by container key: from its create message, then as
    read back."""
    released: str = ""
    """Why the node was released, for example by a user; empty while containers are placed."""
    configuration: str = ""
    """The last configuration that placed containers, to detect a change at a restart: see `LastConfiguration`."""
    pods_cgroup: str = ""
    """The cgroup above those of all pods, which bounds the topology; empty until a pod has named it."""
    kept: Mapping[str, Kept] = field(default_factory=dict)
    """By UID of the pod, the kept CPUs of its containers that have ended."""
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    """By `Incident.key`: open incidents, and ended ones while a container's stop or status needs them."""
    former: Mapping[str, Grant] = field(default_factory=dict)
    """The grants before `criproxy release`, by container key: they return when it ends."""

    @cached_property
    def owned_cpus(self) -> CpuSet:
        """The exclusive CPUs of containers; containers of one pod may share theirs."""
        return NO_CPUS.union(*(grant.exclusive for grant in self.grants.values() if grant.exclusive))

    @cached_property
    def pods_with_exclusive(self) -> frozenset[str]:
        """The sandboxes whose containers have exclusive CPUs."""
        owners = (self.containers.get(key) for key, grant in self.grants.items() if grant.exclusive)
        return frozenset(container.pod for container in owners if container)

    @cached_property
    def exclusive_cpus(self) -> CpuSet:
        """CPUs that are not shared: the exclusive CPUs of containers, and kept CPUs."""
        return self.owned_cpus | self.kept_cpus if self.kept else self.owned_cpus

    @property
    def kept_cpus(self) -> CpuSet:
        """The kept CPUs of all pods; their own containers may have some of them again."""
        return NO_CPUS.union(*(kept.cpus for kept in self.kept.values()))

    @cached_property
    def preserved_keys(self) -> frozenset[str]:
        """The preserved containers: they have all CPUs that are not exclusive."""
        return frozenset(key for key, grant in self.grants.items() if grant.is_preserved)

    @cached_property
    def shared_cpus(self) -> CpuSet:
        """CPUs that pods may use and that are not exclusive: also for containers whose placement failed."""
        return self.topology.cpus - self.exclusive_cpus

    @property
    def anywhere(self) -> Applied:
        """Where a container may be of which nothing is known: on all CPUs and NUMA nodes that pods may use."""
        return Applied(self.topology.cpus, self.topology.mems)

    @cached_property
    def watched_cpus(self) -> CpuSet:
        """CPUs of watched containers, which cannot become exclusive.

        criproxy did not place these containers, or an update might take their cards away.

        A CPU that was exclusive before stays so, but the watched container uses it, too.
        """
        watched = (key for key in self.applied.keys() - self.grants.keys() if self.is_watched(key))
        return NO_CPUS.union(*(self.applied[key].cpus for key in watched)) & self.topology.cpus

    def free_cpus(self, reserved: CpuSet) -> CpuSet:
        """Return the shared CPUs that can become exclusive if *reserved* CPUs cannot."""
        return self.shared_cpus - reserved - self.topology.isolated_cpus - self.watched_cpus

    def is_watched(self, key: str) -> bool:
        """Whether the container *key* is watched, so that its CPUs are among `watched_cpus`."""
        container = self.containers.get(key)
        if container is None or (not container.stays and (container.reservation or key in self.former)):
            return False
        return key in self.applied and key not in self.grants

    def total_of(self, container: Container) -> int | None:
        """Return the CPU of the whole pod of *container*, in milli, as `Pod.cap_milli`."""
        pod = self.pods.get(container.pod)
        return pod.cap_milli if pod else None

    def containers_of(self, pod: str) -> list[Container]:
        """Return the containers of the sandbox *pod*, in the order of their creation."""
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
        pods_cgroup: str | None = None,
        kept: Mapping[str, Kept] | None = None,
        incidents: Mapping[str, Incident] | None = None,
        former: Mapping[str, Grant] | None = None,
    ) -> "Node":
        """Return a copy with other maps, or on another machine."""
        made = Node(
            topology=self.topology if topology is None else topology,
            pods=self.pods if pods is None else pods,
            containers=self.containers if containers is None else containers,
            grants=self.grants if grants is None else grants,
            applied=self.applied if applied is None else applied,
            released=self.released if released is None else released,
            configuration=self.configuration if configuration is None else configuration,
            pods_cgroup=self.pods_cgroup if pods_cgroup is None else pods_cgroup,
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
    """Whether `_FOLLOWING_FROM_GRANTS` are equal for both maps, checked quickly with the few entries that differ."""
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
