"""All balloons of a node, those with containers (see `reading`) and those without.

A balloon without containers that has to be there all the same (minBalloons) is in no grant: which CPUs it has follows
from all others, every time anew. Nothing runs in it, so it may be elsewhere after each event.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from criproxy.model.cpuset import CpuSet, interned
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.resources import MIN_REQUEST_MILLI
from criproxy.model.workload import Container
from criproxy.placement.alloc.locality import Wants
from criproxy.placement.policies.balloons.balloon_cpus import Shape, resized, shape_of, smallest
from criproxy.placement.policies.balloons.fields import RESERVED
from criproxy.placement.policies.balloons.kinds import Catalogue, Kind


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
    """CPUs that balloons may have: they are not exclusive."""
    balloons: Mapping[str, Balloon]
    """By name: those with containers, then those that are there without."""
    free: CpuSet
    """CPUs of no balloon."""
    by_kind: Mapping[int, Sequence[Balloon]]
    """By the index of the type, the balloons of it by instance."""
    strangers: CpuSet = NO_CPUS
    """CPUs of containers that are in no balloon, unmanaged or of an earlier policy: balloons take these last."""

    @cached_property
    def idle(self) -> CpuSet:
        """CPUs of no balloon that may be lent."""
        return self.free - self.catalogue.topology.isolated_cpus

    def lent(self, balloon: Balloon) -> CpuSet:
        """CPUs of no balloon that containers of *balloon* may use as long as they are idle."""
        level = balloon.shape.kind.type.share_idle_cpus_in_same
        return NO_CPUS if level is None else self._idle_around(self.catalogue.around.of(level, balloon.home))

    def _idle_around(self, part: CpuSet) -> CpuSet:
        """The idle ones of a part of the machine, of which there are fewer than balloons."""
        found = self._idle_in.get(part)
        if found is None:
            self._idle_in[part] = found = interned(part & self.idle)
        return found

    @cached_property
    def _idle_in(self) -> dict[CpuSet, CpuSet]:
        return {}

    def of(self, kind: Kind) -> Sequence[Balloon]:
        """The balloons of a type by instance."""
        return self.by_kind.get(kind.index, ())

    def loaded(self, loads: Mapping[str, str], besides: str) -> tuple[CpuSet, ...]:
        """For each of *loads*, the CPUs that share its level with balloons of that load, but for the one *besides*."""
        return tuple(self._loaded(load, level, besides) for load, level in loads.items())

    def _loaded(self, load: str, level: str, besides: str) -> CpuSet:
        others = (b for name, b in self.balloons.items() if name != besides and load in b.shape.loads)
        return self.catalogue.around.of(level, NO_CPUS.union(*(balloon.home for balloon in others)))

    def with_balloon(self, balloon: Balloon) -> "State":
        """The same with *balloon* new or in place of the one of its name."""
        name, kind = balloon.name, balloon.kind
        old, balloons = self.balloons.get(name), {**self.balloons, name: balloon}
        if old is None:
            free, those = self.free - balloon.home, sorted([*self.of(kind), balloon], key=attrgetter("instance"))
        else:
            free = _free(self.catalogue, self.usable, balloons.values())
            those = [balloon if each is old else each for each in self.of(kind)]
        return replace(self, balloons=balloons, free=free, by_kind={**self.by_kind, kind.index: those})

    def settled(self) -> "State":
        """The same with exactly those empty balloons that must exist, on CPUs that follow from the others."""
        state = self.crowded()
        for kind in self.catalogue.created:
            missing = kind.type.min_balloons - len(state.of(kind))
            for _ in range(missing):
                if (empty := state.new(kind)) is None:
                    break
                state = state.with_balloon(empty)
        return state

    def crowded(self) -> "State":
        """The same without balloons that have no containers."""
        empty = {balloon.kind.index for balloon in self.balloons.values() if not balloon.keys}
        if not empty:
            return self
        balloons = {name: balloon for name, balloon in self.balloons.items() if balloon.keys}
        crowded = {index: [balloon for balloon in self.by_kind[index] if balloon.keys] for index in empty}
        free = _free(self.catalogue, self.usable, balloons.values())
        return replace(self, balloons=balloons, free=free, by_kind={**self.by_kind, **crowded})

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
        """*balloon* with parts of these sizes; there are enough free CPUs.

        A part that shrinks keeps of CPUs that suit it those in the first of *rather*, of them those in the second.
        """
        loads = self.loaded(balloon.shape.loads, balloon.name)
        strangers = self.strangers - (self.catalogue.counted if balloon.kind.name == RESERVED else NO_CPUS)
        away = (*loads, strangers) if strangers else loads
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


def asked_milli(container: Container) -> int:
    """The request as it counts: the smallest that CRI can express counts as none, as in CRI-RM."""
    return container.cpu_milli if container.cpu_milli > MIN_REQUEST_MILLI else 0


def state_of(
    catalogue: Catalogue, usable: CpuSet, balloons: Mapping[str, Balloon], strangers: CpuSet = NO_CPUS
) -> State:
    """All of *balloons*."""
    by_kind: dict[int, list[Balloon]] = {}
    for balloon in sorted(balloons.values(), key=attrgetter("instance")):
        by_kind.setdefault(balloon.shape.kind.index, []).append(balloon)
    return State(catalogue, usable, balloons, _free(catalogue, usable, balloons.values()), by_kind, strangers)


def _free(catalogue: Catalogue, usable: CpuSet, balloons: Iterable[Balloon]) -> CpuSet:
    return usable.difference(catalogue.fixed, *(balloon.home for balloon in balloons))


def worth_keeping(node: Node, balloon: Balloon, sizes: Sequence[int]) -> tuple[CpuSet, ...]:
    """Which CPUs a *balloon* that shrinks to these sizes prefers to keep, for `State.resize`; none where it grows.

    Those next to memory that all its containers have, of them those next to memory that any has: memory in use does not
    follow. Containers whose memory comes from everywhere do not count.
    """
    if sum(sizes) >= len(balloon.home):
        return ()
    grants, topology = node.grants, node.topology
    kept = {grants[key].home_mems or grants[key].mems for key in balloon.keys if key in grants}
    had = kept - {NO_CPUS, topology.mems}
    if not had:
        return ()
    some = NO_CPUS.union(*had)
    return topology.cpus_of(some.intersection(*had)), topology.cpus_of(some)


def members(node: Node, keys: Collection[str]) -> list[Container]:
    """The containers with these keys."""
    return [node.containers[key] for key in keys if key in node.containers]
