"""The state of one node: an immutable value that the engine replaces with every event; and where containers were."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from operator import is_not
from typing import Any, Self, TypedDict, TypeVar, Unpack

from criproxy.model.controls import NO_CONTROLS
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, PRESERVED, Applied, Grant, Kept, Reason
from criproxy.model.incident import Incident
from criproxy.model.machine.topology import Topology
from criproxy.model.remembered import remembered
from criproxy.model.workload import Container, Desired, Missed, Pod

V = TypeVar("V")
_UNDONE = "undone"
"""Before the digest, in the text."""
_GENERATIONS = 8
"""So many maps, each made from the one before, the few events make at most between two looks of one part."""
_ORIGINS = 24
"""So many of the last maps know their origin; older ones need not keep maps that nobody else has."""
_UNKNOWN = "unknown"
"""In place of a digest."""


def without(base: Mapping[str, V], keys: Collection[str]) -> dict[str, V]:
    """Return *base* without *keys*, some of which may be missing."""
    return with_changes(base, {}, keys)


def with_changes(base: Mapping[str, V], changes: Mapping[str, V], removed: Collection[str] = ()) -> dict[str, V]:
    """Return *base* without the keys *removed*, some of which may be missing, and with the entries *changes*.

    What is changed is known here, so that `changed_keys` does not have to compare the maps of all containers.
    """
    entries = _Made(base)  # a complete copy is much cheaper than a filter
    for key in removed:
        if entries and next(reversed(entries)) == key:
            entries.popitem()  # leaves no hole, which would make the next copy five times slower
        else:
            entries.pop(key, None)
    entries.update(changes)
    differing = {key for key in (*changes, *removed) if base.get(key) is not entries.get(key)}
    entries.origin, entries.special = (base, differing), None
    _recent.append(entries)
    if len(_recent) > _ORIGINS:
        _recent.popleft().origin = None
    return entries


class _Made(dict[str, V]):
    """A map that `with_changes` has made."""

    __slots__ = ("origin", "special")
    origin: tuple[Mapping[str, V], Collection[str]] | None
    """From which map it was made, and the keys that differ; None if that is forgotten."""
    special: "_Special | None"
    """Of a map of grants, if it was looked at: what `_special` has found."""


_recent = deque[_Made[Any]]()
"""Several threads may use it at the same time: none takes one more often than it adds one."""


def changed_keys(old: Mapping[str, V], new: Mapping[str, V]) -> Collection[str]:
    """Return the keys whose values are different objects in the two maps, or that only one of them has."""
    if old is new:
        return ()
    made: Mapping[str, object] = new
    maybe: Collection[str] = ()
    for _ in range(_GENERATIONS):
        if not isinstance(made, _Made) or (origin := made.origin) is None:
            break
        made, keys = origin
        if made is old and not maybe:
            return keys
        maybe = {*maybe, *keys}
        if 8 * len(maybe) > len(new):
            break  # to look at all is as fast, and remembered
        if made is old:
            return [key for key in maybe if old.get(key) is not new.get(key)]
    return _differing(old, new)


@remembered(8)  # after an event, several parts ask what it changed
def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> Collection[str]:
    # An event changes one or two of a thousand entries: no Python code runs for the others.
    changed = list(compress(new, map(is_not, map(old.get, new), new.values())))
    if len(old) + sum(key not in old for key in changed) != len(new):
        changed += old.keys() - new.keys()
    return changed


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
    barred: CpuSet = NO_CPUS
    """Only as a policy sees the node: more CPUs that cannot become exclusive to the container that it places."""

    @cached_property
    def owned_cpus(self) -> CpuSet:
        """The exclusive CPUs of containers; containers of one pod may share theirs."""
        return _special(self.grants).owned_cpus

    @cached_property
    def pods_with_exclusive(self) -> frozenset[str]:
        """The sandboxes whose containers have exclusive CPUs."""
        owners = map(self.containers.get, _special(self.grants).owners)
        return frozenset(container.pod for container in owners if container)

    @cached_property
    def exclusive_cpus(self) -> CpuSet:
        """CPUs that are not shared: the exclusive CPUs of containers, and kept CPUs."""
        return self.owned_cpus | self.kept_cpus if self.kept else self.owned_cpus

    @property
    def kept_cpus(self) -> CpuSet:
        """The kept CPUs of all pods; their own containers may have some of them again."""
        return NO_CPUS.union(*(kept.cpus for kept in self.kept.values()))

    @property
    def preserved_keys(self) -> frozenset[str]:
        """The preserved containers: they have all CPUs that are not exclusive."""
        return _special(self.grants).preserved

    @property
    def controlled_keys(self) -> frozenset[str]:
        """The containers for which classes set something, or did: see `Grant.controls`."""
        return _special(self.grants).controlled

    @property
    def displaced_keys(self) -> Collection[str]:
        """The containers whose memory is to return to fewer NUMA nodes, as `Grant.home_mems`."""
        return _special(self.grants).displaced

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
        return NO_CPUS.union(self.barred, *(self.applied[key].cpus for key in watched)) & self.topology.cpus

    def free_cpus(self, reserved: CpuSet) -> CpuSet:
        """Return the shared CPUs that can become exclusive if *reserved* CPUs cannot."""
        return self.shared_cpus - reserved - self.topology.isolated_cpus - self.watched_cpus

    def is_watched(self, key: str) -> bool:
        """Whether the container *key* is watched, so that its CPUs are among `watched_cpus`."""
        container = self.containers.get(key)
        if container is None or (not container.stays and (container.reservation or key in self.former)):
            return False
        return key in self.applied and key not in self.grants

    def own_cpus(self, key: str) -> CpuSet:
        """Return the exclusive CPUs of the container *key*; none without a grant."""
        return self.grants[key].exclusive if key in self.grants else NO_CPUS

    def total_of(self, container: Container) -> int | None:
        """Return the CPU of the whole pod of *container*, in milli, as `Pod.cap_milli`."""
        pod = self.pods.get(container.pod)
        return pod.cap_milli if pod else None

    def containers_of(self, pod: str) -> list[Container]:
        """Return the containers of the sandbox *pod*, in the order of their creation."""
        return [container for container in self.containers.values() if container.pod == pod]

    def replace(self, **parts: Unpack["_Parts"]) -> "Node":
        """Return a copy with other maps, or on another machine."""
        changes: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
        return replace(self, **changes)


Explained = tuple[Node, tuple[Reason, ...]]
"""A node, and why it is as it is."""


class _Parts(TypedDict, total=False):
    """What `Node.replace` changes: fields of the node; None: nothing."""

    topology: Topology | None
    pods: Mapping[str, Pod] | None
    containers: Mapping[str, Container] | None
    grants: Mapping[str, Grant] | None
    applied: Mapping[str, Applied] | None
    released: str | None
    configuration: str | None
    pods_cgroup: str | None
    kept: Mapping[str, Kept] | None
    incidents: Mapping[str, Incident] | None
    former: Mapping[str, Grant] | None
    barred: CpuSet | None


@dataclass(frozen=True, slots=True)
class _Special:
    """The keys of the few containers of which steps need to know; most just share CPUs."""

    owners: Mapping[str, CpuSet]
    """Those with exclusive CPUs, and these."""
    owned_cpus: CpuSet
    """The exclusive CPUs of all owners."""
    preserved: frozenset[str]
    displaced: Collection[str]
    """Those whose memory is to return to fewer NUMA nodes, as `Grant.home_mems`, in the order of the map."""
    controlled: frozenset[str]

    def with_changes(self, changed: Mapping[str, Grant], keys: Collection[str]) -> "_Special":
        """Return what is special after the grants of *keys*, none of them displaced, have changed to *changed* ones."""
        new = _of_special(changed)
        owners = {**{key: cpus for key, cpus in self.owners.items() if key not in keys}, **new.owners}
        same = owners == self.owners
        return _Special(
            self.owners if same else owners,
            self.owned_cpus if same else NO_CPUS.union(*owners.values()),
            _with(self.preserved, new.preserved, keys),
            self.displaced,
            _with(self.controlled, new.controlled, keys),
        )


def _with(names: frozenset[str], new: frozenset[str], keys: Collection[str]) -> frozenset[str]:
    """Return *names*, often all containers, with those of *keys* that are *new*, and without the others."""
    differing = names.intersection(keys) ^ new
    return differing ^ names if differing else names


def _special_among(places: Iterable[tuple[str, Grant]]) -> dict[str, Grant]:
    return {
        key: each
        for key, each in places
        if each.exclusive or each.home_mems or each.pool == PRESERVED or each.controls is not NO_CONTROLS
    }


def _special(grants: Mapping[str, Grant]) -> _Special:
    if not isinstance(grants, _Made):
        return _searched(grants)
    if grants.special is None:
        grants.special = _as_in_origin(grants) or _searched(grants)
    return grants.special


def _as_in_origin(grants: _Made[Grant]) -> _Special | None:
    """Return what is special, by that of the map from which *grants* was made; None if all have to be looked at."""
    if grants.origin is None:
        return None
    base, keys = grants.origin
    if 2 * len(keys) > len(grants):
        return None
    was = _special_among((key, base[key]) for key in keys if key in base)
    now = _special_among((key, grants[key]) for key in keys if key in grants)
    if any(grant.home_mems for grant in (*was.values(), *now.values())):
        return None
    return _special(base).with_changes(now, keys) if was or now else _special(base)


@remembered(16)  # several nodes of one event have the same grants
def _searched(grants: Mapping[str, Grant]) -> _Special:
    return _of_special(_special_among(grants.items()))


def _of_special(special: Mapping[str, Grant]) -> _Special:
    owners = {key: grant.exclusive for key, grant in special.items() if grant.exclusive}
    preserved = frozenset([key for key, grant in special.items() if grant.is_preserved and key not in owners])
    displaced = [key for key, grant in special.items() if grant.home_mems]
    controlled = frozenset([key for key, grant in special.items() if grant.controls is not NO_CONTROLS])
    return _Special(owners, NO_CPUS.union(*owners.values()), preserved, displaced, controlled)


@dataclass(frozen=True, slots=True)
class LastConfiguration:
    """The content of `Node.configuration`, which the store keeps as one text."""

    digest: str = ""
    """As `Settings.configuration`; empty if unknown: the state is new, or was lost."""
    is_undone: bool = False
    """Whether its release was undone while no daemon ran: the next daemon places all containers."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the *text* of `Node.configuration`."""
        return cls(text.removeprefix(_UNDONE), text.startswith(_UNDONE))

    def format(self) -> str:
        """Return the text for `Node.configuration`."""
        return f"{_UNDONE if self.is_undone else ''}{self.digest}"

    @property
    def undone(self) -> Self:
        """The value after its release was undone."""
        return replace(self, is_undone=True)

    @property
    def digest_of_release(self) -> str:
        """The digest to store in a release without a policy file.

        If no digest is known, it is a text that equals no digest.
        """
        return self.digest or _UNKNOWN

    def keeps_release(self, digest: str) -> bool:
        """Whether a release continues under the configuration with *digest*, which is, or may be, the former one."""
        return not self.is_undone and self.digest in (digest, _UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a container asked for beside the size of its place, and what it should have had."""

    cpu_limit_milli: int | None = None
    desired: Desired | None = None
    """As `Container.desired`."""
    missed: Missed | None = None
    """As `Container.missed`."""


@dataclass(frozen=True, slots=True)
class Place:
    """The grant of a container, and the size for which it was given."""

    grant: Grant
    cpu_milli: int = 0
    wish: Wish | None = None
    """None: an earlier version, which does not know it, has stored the place."""


Places = Mapping[str, Place]
"""By `Container.life`, which stays the same when the runtime assigns the id."""


def places_of(node: Node) -> Places:
    """Return the places of all containers of *node* that have one."""
    held = ((node.containers[key], grant) for key, grant in node.grants.items() if key in node.containers)
    return {
        each.life: Place(
            grant, each.cpu_milli, Wish(cpu_limit_milli=each.cpu_limit_milli, desired=each.desired, missed=each.missed)
        )
        for each, grant in held
    }
