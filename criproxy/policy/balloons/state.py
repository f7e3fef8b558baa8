"""The balloons of a node, read from its grants alone.

A container's grant names its balloon and says which CPUs are the balloon's own. A balloon without containers that has
to be there all the same (minBalloons) is in no grant: which CPUs it has follows from all others, every time anew.
Nothing runs in it, so it may be elsewhere after each event.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from re import fullmatch

from criproxy.alloc.locality import Wants
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node
from criproxy.model.resources import MIN_REQUEST_MILLI
from criproxy.model.workload import Container
from criproxy.policy.balloons.kinds import Catalogue, Kind
from criproxy.policy.balloons.sizes import Shape, resized, shape_of, smallest


@dataclass(frozen=True, slots=True)
class Balloon:
    """CPUs, and the containers that run there."""

    shape: Shape
    instance: int
    home: CpuSet = NO_CPUS
    """Its own CPUs."""
    milli: int = 0
    """What its containers ask for."""
    keys: tuple[str, ...] = ()
    """Its containers, in the order in which they came."""

    @property
    def kind(self) -> Kind:
        """Its type."""
        return self.shape.kind

    @property
    def name(self) -> str:
        """As in `Grant.pool`, such as ``fast[1]``; a composite one that has chosen parts names them."""
        return f"{self.shape.kind.type.name}[{self.instance}]{self.shape.suffix}"

    @property
    def free_milli(self) -> int:
        """What a further container may ask for without more CPUs; negative where too much is granted."""
        return len(self.home) * 1000 - self.milli


@dataclass(frozen=True)
class State:
    """All balloons of a node at one moment."""

    catalogue: Catalogue
    usable: CpuSet
    """CPUs that balloons may have: nobody owns them."""
    balloons: Mapping[str, Balloon]
    """By name: those with containers, then those that are there without."""
    strangers: CpuSet = NO_CPUS
    """Where containers run that are in no balloon, others' or of an earlier policy: balloons take these last."""

    @cached_property
    def free(self) -> CpuSet:
        """CPUs of no balloon."""
        return self.usable.difference(self.catalogue.fixed, *(balloon.home for balloon in self.balloons.values()))

    @cached_property
    def idle(self) -> CpuSet:
        """Those of them that may be lent."""
        return self.free - self.catalogue.topology.isolated_cpus

    def idle_in(self, part: CpuSet) -> CpuSet:
        """Those of a part of the machine, of which there are fewer than balloons."""
        if part not in self._idle_in:
            self._idle_in[part] = part & self.idle
        return self._idle_in[part]

    @cached_property
    def _idle_in(self) -> dict[CpuSet, CpuSet]:
        return {}

    def of(self, kind: Kind) -> list[Balloon]:
        """The balloons of a type by instance."""
        return self._by_kind.get(kind.index, [])

    @cached_property
    def _by_kind(self) -> Mapping[int, list[Balloon]]:
        """By the index of the type."""
        found: dict[int, list[Balloon]] = {}
        for balloon in self.balloons.values():
            found.setdefault(balloon.shape.kind.index, []).append(balloon)
        for balloons in found.values():
            balloons.sort(key=attrgetter("instance"))
        return found

    def loaded(self, loads: Mapping[str, str], besides: str) -> tuple[CpuSet, ...]:
        """For each of *loads*, the CPUs that share its level with balloons of that load, but for the one *besides*."""
        return tuple(self._loaded(load, level, besides) for load, level in loads.items())

    def _loaded(self, load: str, level: str, besides: str) -> CpuSet:
        others = (b for name, b in self.balloons.items() if name != besides and load in b.shape.loads)
        return self.catalogue.around.of(level, NO_CPUS.union(*(balloon.home for balloon in others)))

    def with_balloon(self, balloon: Balloon) -> "State":
        """The same with *balloon* new or in place of the one of its name."""
        return replace(self, balloons={**self.balloons, balloon.name: balloon})

    def without(self, name: str) -> "State":
        """The same without a balloon."""
        return replace(self, balloons={other: b for other, b in self.balloons.items() if other != name})

    def settled(self) -> "State":
        """The same with exactly those empty balloons that have to be there, on CPUs that follow from the others."""
        state = replace(self, balloons={name: b for name, b in self.balloons.items() if b.keys})
        for kind in self.catalogue.created:
            missing = kind.type.min_balloons - len(state.of(kind))
            for _ in range(missing):
                if (empty := state.new(kind)) is None:
                    break
                state = state.with_balloon(empty)
        return state

    def new(
        self, kind: Kind, milli: int = 0, close_to: tuple[CpuSet, ...] = (), rather: tuple[CpuSet, ...] = ()
    ) -> Balloon | None:
        """A balloon of a type that is not there yet, large enough for *milli*; None where there is no room.

        Its CPUs are *close_to* these if possible, the last set first, and of several that suit it in these of *rather*.
        """
        used = {balloon.instance for balloon in self.of(kind)}
        instance = next(number for number in range(len(used) + 1) if number not in used)
        shape = shape_of(kind, self.counts() if kind.chooses else {})
        if kind.fixed:
            return Balloon(shape, instance, kind.fixed & self.usable)
        sizes = shape.sizes(milli) if milli else smallest(shape)
        if sizes is None or sum(sizes) > len(self.free):
            return None
        return self.resize(Balloon(shape, instance), sizes, close_to, rather)

    def resize(
        self,
        balloon: Balloon,
        sizes: tuple[int, ...],
        close_to: tuple[CpuSet, ...] = (),
        rather: tuple[CpuSet, ...] = (),
    ) -> Balloon:
        """*balloon* with parts of these sizes; there are enough free CPUs."""
        loads = self.loaded(balloon.shape.loads, balloon.name)
        away = (*loads, self.strangers) if self.strangers else loads
        also = Wants(close_to, away, rather)
        free = self.free - balloon.home
        return replace(balloon, home=resized(self.catalogue, balloon.shape, balloon.home, free, sizes, also))

    def counts(self) -> dict[str, int]:
        """How many balloons there are of each type, parts of others included."""
        found: dict[str, int] = {}
        for balloon in self.balloons.values():
            for name in balloon.shape.names():
                found[name] = found.get(name, 0) + 1
        return found


@dataclass(slots=True)
class _Tally:
    """A balloon while grants are read."""

    balloon: Balloon
    milli: int = 0
    keys: list[str] = field(default_factory=list)
    homes: list[CpuSet] = field(default_factory=list)


def asked_milli(container: Container) -> int:
    """What counts of a request: the least that CRI can say is none, as in CRI-RM."""
    return container.cpu_milli if container.cpu_milli > MIN_REQUEST_MILLI else 0


def read(catalogue: Catalogue, node: Node, grants: Mapping[str, Grant]) -> State:
    """The balloons of *node* by its *grants*, those without containers included."""
    tallies: dict[str, _Tally | None] = {}
    strangers, owned = [node.watched_cpus], [NO_CPUS]
    containers = node.containers
    for key, grant in grants.items():
        pool = grant.pool
        if pool not in tallies:
            named = catalogue.pools
            if pool not in named:
                named[pool] = _named(catalogue, pool)
            tallies[pool] = _Tally(named[pool]) if named[pool] else None
        tally = tallies[pool]
        if grant.exclusive:
            owned.append(grant.exclusive)
        if tally is None or grant.exclusive:
            if grant.cpus != node.topology.cpus:
                strangers.append(grant.cpus)
            continue
        tally.keys.append(key)
        home = grant.home or grant.cpus
        if not tally.homes or (home is not tally.homes[-1] and home != tally.homes[-1]):
            tally.homes.append(home)
        if key in containers:
            tally.milli += asked_milli(containers[key])
    usable = node.topology.cpus - NO_CPUS.union(*owned)
    balloons = dict(_disjoint((tally for tally in tallies.values() if tally and tally.keys), usable))
    stranger = NO_CPUS.union(*strangers)
    return State(catalogue, usable, balloons, NO_CPUS if stranger >= usable else stranger).settled()


def _disjoint(tallies: Iterable[_Tally], usable: CpuSet) -> Iterator[tuple[str, Balloon]]:
    """The balloons with CPUs that no two of them have, which is what they should have anyway."""
    taken: set[int] = set()
    for tally in tallies:
        empty = tally.balloon
        home = tally.homes[0] if len(tally.homes) == 1 else NO_CPUS.union(*tally.homes)
        if empty.kind.fixed:
            home = empty.kind.fixed
        elif not home.isdisjoint(taken):
            home -= taken
        home = home if home <= usable else home & usable
        taken |= home
        yield empty.name, Balloon(empty.shape, empty.instance, home, tally.milli, tuple(tally.keys))


def _named(catalogue: Catalogue, pool: str) -> Balloon | None:
    """The balloon, still empty, that a grant's pool names; None where there is no such type any more."""
    parsed = _parsed(pool)
    kind = catalogue.by_name.get(parsed[0]) if parsed else None
    if parsed is None or kind is None:
        return None
    shape = shape_of(kind, chosen=parsed[2])
    return Balloon(shape, parsed[1]) if shape.chosen == parsed[2] else None


def _parsed(pool: str) -> tuple[str, int, tuple[str, ...]] | None:
    found = fullmatch(r"([^\[\]/]+)\[(\d{1,6})\]((?:/[^\[\]/]+)*)", pool)
    return (found[1], int(found[2]), tuple(found[3].split("/")[1:])) if found else None


def members(node: Node, keys: Collection[str]) -> list[Container]:
    """The containers with these keys."""
    return [node.containers[key] for key in keys if key in node.containers]
