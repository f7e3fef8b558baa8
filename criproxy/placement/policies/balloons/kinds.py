"""Balloon types as they are in force on one machine: with the two that are always there, and with real CPUs.

Options name devices, cores and loads; here these have become sets of CPUs that a type wants or avoids.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from re import fullmatch
from typing import Any

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.remembered import remembered
from criproxy.placement.alloc.locality import CpuSets, Tree, Wants, build_tree
from criproxy.placement.alloc.near import Priority, cpus_of_priority
from criproxy.placement.policies.balloons.fields import DEFAULT, PRIORITIES, RESERVED, BalloonsFields, BalloonType

POD_RESOURCES = "podresourceapi:"
"""Instead of a path: the devices of a balloon's own containers, to which every balloon is close anyway."""
_NODE = r"/sys/devices/system/node/node(\d+)"
_CPU = r"/sys/devices/system/cpu/cpu(\d+)(/cache/index([0-3]))?"
"""Index 0 and 1 of a CPU's caches are its level 1 caches, 2 is level 2 and 3 is level 3."""


@dataclass(frozen=True)
class Kind:
    """A balloon type on one machine; that of a balloon has the parts that this has, where there is a choice."""

    index: int
    """Its place in the order of types."""
    type: BalloonType
    wants: Wants = field(default_factory=Wants)
    fixed: CpuSet = NO_CPUS
    """All CPUs that its only balloon ever has; empty: as many as it needs."""
    overbooked: bool = False
    """Whether its only balloon takes every container, however large their requests."""
    loads: Mapping[str, str] = field(default_factory=dict)
    """What its containers load: classes, each with its level."""
    parts: tuple["Kind", ...] = ()
    """Of a composite type."""

    @property
    def name(self) -> str:
        """As in annotations and options."""
        return self.type.name

    @property
    def max_cpus(self) -> int | None:
        """The size of its largest balloon; None: no limit."""
        return self.type.max_cpus if self.type.max_cpus > 0 else None

    @property
    def refused(self) -> bool:
        """Whether its containers are not to run on this node."""
        return self.type.max_cpus < 0

    @property
    def one_of(self) -> bool:
        """Whether a balloon has one of the parts only."""
        return self.type.component_creation == "balance-balloons"

    @cached_property
    def chooses(self) -> bool:
        """Whether its balloons, or their parts, have one of several parts."""
        return self.one_of or any(part.chooses for part in self.parts)

    def family(self) -> Iterator[str]:
        """Its name and those of all types that it is made of."""
        yield self.name
        for part in self.parts:
            yield from part.family()

    @cached_property
    def leaves(self) -> tuple["Kind", ...]:
        """The types of the parts that have CPUs of their own; of a simple balloon its own type."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) if self.parts else (self,)

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """The names of parts that others could have been instead of, from the outside to the inside."""
        own = (self.parts[0].name,) if self.one_of and self.parts else ()
        return own + tuple(name for part in self.parts for name in part.chosen)

    @cached_property
    def suffix(self) -> str:
        """What `chosen` adds to its name."""
        return "".join(f"/{name}" for name in self.chosen)

    @cached_property
    def all_loads(self) -> Mapping[str, str]:
        """What its containers load: classes, each with its level."""
        return {load: level for leaf in self.leaves for load, level in leaf.loads.items()}

    def sizes(self, milli: int) -> tuple[int, ...] | None:
        """CPUs of each leaf for containers that ask for *milli* in all; None where the type allows no balloon so large.

        The parts of a composite balloon share evenly.
        """
        if not self.parts:
            size = max(self.type.min_cpus, -(-max(milli, 1) // 1000))
            return None if self.max_cpus is not None and size > self.max_cpus else (size,)
        share = -(-max(milli, 1, self.type.min_cpus * 1000) // len(self.parts))
        found: list[int] = []
        for part in self.parts:
            sizes = part.sizes(share)
            if sizes is None:
                return None
            found += sizes
        return None if self.max_cpus is not None and sum(found) > self.max_cpus else tuple(found)

    @cached_property
    def limit(self) -> int | None:
        """How many CPUs it can have at most; None: any number."""
        known = [part.limit for part in self.parts if part.limit is not None]
        limits = [self.max_cpus, min(known) * len(self.parts) if known else None]
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True)
class Catalogue:
    """All types on one machine."""

    options: BalloonsFields
    topology: Topology
    kinds: Sequence[Kind]
    """In the order in which a container's type is looked for."""
    named: dict[str, Any] = field(default_factory=dict, compare=False)
    """The balloons that names of pools stand for, as far as `state.read` has parsed them: one of its caches."""
    last_read: list[Any] = field(default_factory=list, compare=False)
    """What it has read last: its other cache."""

    @cached_property
    def by_name(self) -> Mapping[str, Kind]:
        """The types by name."""
        return {kind.name: kind for kind in self.kinds}

    @cached_property
    def counted(self) -> CpuSet:
        """The CPUs that count as reserved, by name or for an amount: shared containers may be there."""
        return self.options.reserved(self.topology) & self.topology.cpus

    @cached_property
    def created(self) -> Sequence[Kind]:
        """Types with balloons that are always there, in the order in which they get their CPUs."""
        kinds = [kind for kind in self.kinds if kind.type.min_balloons and not kind.refused]
        return sorted(kinds, key=lambda kind: (PRIORITIES.index(kind.type.allocator_priority), kind.index))

    @cached_property
    def tree(self) -> Callable[[bool], Tree]:
        """The machine, level by level, by whether CPUs shall be spread; each is built when it is needed."""
        return cache(lambda spread: build_tree(self.topology, by_thread=spread))

    @cached_property
    def around(self) -> Callable[[str, CpuSet], CpuSet]:
        """Which CPUs are near others, see `Tree.around`: the same few sets are asked for again and again."""
        return lru_cache(maxsize=2048)(self.tree(False).around)

    @cached_property
    def fixed(self) -> CpuSet:
        """CPUs that belong to balloons of a fixed size, whether these have containers or not."""
        return NO_CPUS.union(*(kind.fixed for kind in self.kinds))


@remembered(4)
def catalogue(options: BalloonsFields, topology: Topology) -> Catalogue:
    """The types in force on the machine *topology*, which is all that the policy may use."""
    types = list(_with_builtin(options, topology))
    reserved = options.reserved(topology) & topology.cpus if _reserves_by_name(options) else NO_CPUS
    devices = {kind.name: _devices(kind, topology, reserved, options) for kind in types}
    loads = {load.name: load for load in options.load_classes}
    kinds: dict[str, Kind] = {}
    for index, kind in enumerate(types):
        levels = {name: loads[name].level for name in kind.loads if name in loads}
        alone = {loads[name].level for name in kind.loads if name in loads and loads[name].overloads_level_in_balloon}
        wants = Wants(
            near=tuple(cpus for _, cpus in devices[kind.name]),
            away=_others(kind.name, types, devices, topology),
            balanced=_either(kind.allocator_topology_balancing, default=options.allocator_topology_balancing),
            spread=_either(kind.prefer_spread_on_physical_cores, default=options.prefer_spread_on_physical_cores),
            first=cpus_of_priority(topology, Priority(kind.allocator_priority)),
            alone=tuple(sorted(alone)),
        )
        kinds[kind.name] = Kind(index, kind, wants, loads=levels)
    kinds = {name: _composed(kind, kinds) for name, kind in kinds.items()}
    if options.rules == "crirm":
        kinds = {name: _by_crirm(kind, options, topology) for name, kind in kinds.items()}
    return Catalogue(options, topology, tuple(kinds.values()))


def _composed(kind: Kind, kinds: Mapping[str, Kind]) -> Kind:
    parts = (kinds[part.balloon_type] for part in kind.type.components if part.balloon_type in kinds)
    return replace(kind, parts=tuple(_composed(part, kinds) for part in parts))


def _either(own: bool | None, *, default: bool) -> bool:
    return default if own is None else own


def _with_builtin(options: BalloonsFields, topology: Topology) -> Iterator[BalloonType]:
    """The types of the file, with the reserved one before all and the default one after all, unless they are there."""
    names = {kind.name for kind in options.balloon_types}
    if RESERVED not in names:
        yield _reserved(BalloonType.model_validate({"name": RESERVED, "allocatorPriority": "low"}), options, topology)
    for kind in options.balloon_types:
        yield _reserved(kind, options, topology) if kind.name == RESERVED else kind
    if DEFAULT not in names:
        one = {"minBalloons": 1, "maxBalloons": 1}
        yield BalloonType.model_validate({"name": DEFAULT, "allocatorPriority": "low", **one})


def _reserved(kind: BalloonType, options: BalloonsFields, topology: Topology) -> BalloonType:
    """The type of the one balloon that has the reserved CPUs, or as many CPUs as are reserved."""
    count = len(options.reserved(topology) & topology.cpus)
    update: dict[str, object] = {"min_balloons": 1, "max_balloons": 1}
    update["namespaces"] = (*kind.namespaces, *options.reserved_namespaces)
    if not kind.min_cpus:
        update["min_cpus"] = min(count, kind.max_cpus) if kind.max_cpus > 0 else count
    if _reserves_by_name(options):
        update["allocator_priority"] = "normal"
    return kind.model_copy(update=update)


def _reserves_by_name(options: BalloonsFields) -> bool:
    asked = options.reserved_resources.cpu
    return bool(options.reserved_cpus) if asked is None else asked.cpus is not None


def _by_crirm(kind: Kind, options: BalloonsFields, topology: Topology) -> Kind:
    """CRI-RM's two special balloons: that of the reserved CPUs never grows, and both take every container."""
    if kind.name == RESERVED:
        fixed = options.reserved(topology) & topology.cpus
        return replace(kind, fixed=fixed, overbooked=bool(fixed))
    if kind.name == DEFAULT:
        own = kind.type.model_copy(update={"min_balloons": 1, "max_balloons": 1})
        return replace(kind, type=own, overbooked=True)
    return kind


def _devices(
    kind: BalloonType, topology: Topology, reserved: CpuSet, options: BalloonsFields
) -> list[tuple[str, CpuSet]]:
    """What balloons of a type are close to, most important first: a name, and the CPUs next to it."""
    found = [(RESERVED, reserved)] if kind.name == RESERVED and reserved else []
    found += [(path, cpus) for path in kind.prefer_close_to_devices if (cpus := device_cpus(path, topology, options))]
    if kind.prefer_isol_cpus:
        found.append(("isolated", topology.isolated_cpus))
    if kind.prefer_core_type and topology.cpu_kinds:
        best = topology.cpu_kinds[-1 if kind.prefer_core_type == "performance" else 0]
        found.append((kind.prefer_core_type, best.cpus))
    return found


def _others(
    name: str, types: Sequence[BalloonType], devices: Mapping[str, list[tuple[str, CpuSet]]], topology: Topology
) -> CpuSets:
    """What balloons of the type *name* keep away from: the isolated CPUs, and what others want to be close to."""
    own = {device for device, _ in devices[name]}
    wanted = {"isolated": topology.isolated_cpus} if topology.isolated_cpus else {}
    for kind in types:
        wanted |= {device: cpus for device, cpus in devices[kind.name] if device not in wanted}
    return tuple(cpus for device, cpus in wanted.items() if device not in own)


def device_cpus(path: str, topology: Topology, options: BalloonsFields) -> CpuSet:
    """The CPUs next to a NUMA node, a CPU, one of its caches or a device; none where the machine has no such thing."""
    if found := fullmatch(_NODE, path):
        return topology.cpus_of((int(found[1]),))
    if not (found := fullmatch(_CPU, path)):
        return options.device_cpus.get(path, NO_CPUS) & topology.cpus
    cpu, index = int(found[1]), int(found[3] or 0)
    cores = (core.cpus for core in topology.cores)
    groups = (cores, cores, topology.l2_groups, topology.l3_groups)[min(index, 3)]
    return next((group for group in groups if cpu in group), NO_CPUS)
