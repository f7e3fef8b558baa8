"""All balloons of a node, read from its grants alone, and those without containers.

A container's grant names its balloon and says which CPUs are the balloon's own. There may be hundreds of balloons, and
an event changes one or two: the others are kept from one layout to the next. They are the same as if read anew.

A balloon without containers that has to be there all the same (minBalloons) is in no grant: which CPUs it has follows
from all others, every time anew. Nothing runs in it, so it may be elsewhere after each event.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from re import fullmatch
from typing import NamedTuple

from criproxy.model.cpuset import CpuSet, interned
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node, changed_keys
from criproxy.model.resources import MIN_REQUEST_MILLI
from criproxy.model.workload import Container
from criproxy.placement.alloc.locality import CpuSets, Wants
from criproxy.placement.policies.balloons.balloon_cpus import resized, smallest, with_parts
from criproxy.placement.policies.balloons.fields import RESERVED
from criproxy.placement.policies.balloons.kinds import Catalogue, Kind


@dataclass(frozen=True, slots=True)
class Balloon:
    """CPUs, and the containers that run there."""

    kind: Kind
    """Its type, with the parts that it has."""
    instance: int
    home: CpuSet = NO_CPUS
    """Its own CPUs."""
    milli: int = 0
    """What its containers ask for."""
    keys: tuple[str, ...] = ()
    """Its containers, in the order in which they came."""

    @property
    def name(self) -> str:
        """As in `Grant.pool`, such as ``fast[1]``; a composite one that has chosen parts names them."""
        return f"{self.kind.name}[{self.instance}]{self.kind.suffix}"

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
        level = balloon.kind.type.share_idle_cpus_in_same
        if level is None:
            return NO_CPUS
        part = self.catalogue.around(level, balloon.home)
        if part not in self._idle_in:  # there are fewer parts than balloons
            self._idle_in[part] = interned(part & self.idle)
        return self._idle_in[part]

    @cached_property
    def _idle_in(self) -> dict[CpuSet, CpuSet]:
        return {}

    def of(self, kind: Kind) -> Sequence[Balloon]:
        """The balloons of a type by instance."""
        return self.by_kind.get(kind.index, ())

    def loaded(self, loads: Mapping[str, str], besides: str) -> CpuSets:
        """For each of *loads*, the CPUs that share its level with balloons of that load, but for the one *besides*."""
        others = [balloon for name, balloon in self.balloons.items() if name != besides] if loads else []
        homes = {load: NO_CPUS.union(*(b.home for b in others if load in b.kind.all_loads)) for load in loads}
        return tuple(self.catalogue.around(level, homes[load]) for load, level in loads.items())

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

    def new(self, kind: Kind, milli: int = 0, close_to: CpuSets = (), rather: CpuSets = ()) -> Balloon | None:
        """A balloon of a type that is not there yet, large enough for *milli*; None where there is no room.

        Its CPUs are *close_to* these if possible, the last set first, and of several that suit it in these of *rather*.
        """
        used = {balloon.instance for balloon in self.of(kind)}
        instance = next(number for number in range(len(used) + 1) if number not in used)
        kind = with_parts(kind, self.counts() if kind.chooses else {})
        if kind.fixed:
            return Balloon(kind, instance, kind.fixed & self.usable)
        sizes = kind.sizes(milli) if milli else smallest(kind)
        if sizes is None or sum(sizes) > len(self.free):
            return None
        return self.resize(Balloon(kind, instance), sizes, close_to, rather)

    def resize(self, balloon: Balloon, sizes: Sequence[int], close_to: CpuSets = (), rather: CpuSets = ()) -> Balloon:
        """*balloon* with parts of these sizes; there are enough free CPUs.

        A part that shrinks keeps of CPUs that suit it those in the first of *rather*, of them those in the second.
        """
        loads = self.loaded(balloon.kind.all_loads, balloon.name)
        strangers = self.strangers - (self.catalogue.counted if balloon.kind.name == RESERVED else NO_CPUS)
        also, free = Wants(close_to, (*loads, strangers) if strangers else loads, rather), self.free - balloon.home
        return replace(balloon, home=resized(self.catalogue, balloon.kind, balloon.home, free, sizes, also))

    def counts(self) -> Counter[str]:
        """How many balloons there are of each type, parts of others included."""
        return Counter(name for balloon in self.balloons.values() for name in balloon.kind.family())


def asked_milli(container: Container) -> int:
    """The request as it counts: the smallest that CRI can express counts as none, as in CRI-RM."""
    return container.cpu_milli if container.cpu_milli > MIN_REQUEST_MILLI else 0


def _free(catalogue: Catalogue, usable: CpuSet, balloons: Iterable[Balloon]) -> CpuSet:
    return usable.difference(catalogue.fixed, *(balloon.home for balloon in balloons))


def worth_keeping(node: Node, balloon: Balloon, sizes: Sequence[int]) -> CpuSets:
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


class _Reading(NamedTuple):
    """A layout, and its balloons."""

    containers: Mapping[str, Container]
    grants: Mapping[str, Grant]
    balloons: Mapping[str, Balloon]
    """By name, with the CPUs that the grants say."""


_NOTHING = _Reading({}, {}, {})


def read(catalogue: Catalogue, node: Node, grants: Mapping[str, Grant]) -> State:
    """The balloons of *node* by its *grants*, those without containers included."""
    last: _Reading = catalogue.last_read[0] if catalogue.last_read else _NOTHING
    balloons = _as_granted(catalogue, node, grants, last)
    catalogue.last_read[:] = [_Reading(node.containers, grants, balloons)]
    others = [g for g in grants.values() if g.exclusive or (g.pool not in balloons and not g.is_preserved)]
    everywhere = node.topology.cpus
    usable = everywhere - node.kept_cpus.union(*(grant.exclusive for grant in others))
    strangers = node.watched_cpus.union(*(grant.cpus for grant in others if grant.cpus != everywhere))
    if not _are_apart(balloons, usable):
        balloons = _parted(_as_granted(catalogue, node, grants, _NOTHING), usable)
    by_kind: dict[int, list[Balloon]] = {}
    for balloon in sorted(balloons.values(), key=attrgetter("instance")):
        by_kind.setdefault(balloon.kind.index, []).append(balloon)
    free = _free(catalogue, usable, balloons.values())
    strangers = NO_CPUS if strangers >= usable else strangers
    return State(catalogue, usable, balloons, free, by_kind, strangers).settled()


def _as_granted(catalogue: Catalogue, node: Node, grants: Mapping[str, Grant], last: _Reading) -> Mapping[str, Balloon]:
    """The balloons by name, as the *grants* say. Those without a change since the *last* time are kept."""
    changed = {*changed_keys(last.grants, grants), *changed_keys(last.containers, node.containers)}
    names = {each[key].pool for each in (last.grants, grants) for key in changed if key in each}
    found = {name: balloon for name, balloon in last.balloons.items() if name not in names}
    keys_of: dict[str, list[str]] = defaultdict(list)
    for key, grant in grants.items():
        if grant.pool in names and not grant.exclusive:
            keys_of[grant.pool].append(key)
    for name, keys in keys_of.items():
        if name not in catalogue.named:
            catalogue.named[name] = _named(catalogue, name)
        if empty := catalogue.named[name]:
            found[name] = _filled(empty, keys, node, grants)
    return found


def _filled(empty: Balloon, keys: Sequence[str], node: Node, grants: Mapping[str, Grant]) -> Balloon:
    """The balloon of the containers with these *keys*."""
    homes = {grants[key].home or grants[key].cpus for key in keys}
    milli = sum(asked_milli(each) for each in members(node, keys))
    home = next(iter(homes)) if len(homes) == 1 else NO_CPUS.union(*homes)
    return Balloon(empty.kind, empty.instance, empty.kind.fixed or home, milli, tuple(keys))


def _are_apart(balloons: Mapping[str, Balloon], usable: CpuSet) -> bool:
    """Whether no CPU is in two balloons or outside *usable*, as it should always be."""
    homes = [balloon.home for balloon in balloons.values()]
    together = NO_CPUS.union(*homes)
    return together <= usable and len(together) == sum(map(len, homes))


def _parted(balloons: Mapping[str, Balloon], usable: CpuSet) -> Mapping[str, Balloon]:
    """The balloons where each CPU is in one of them, the first that has it."""
    taken: set[int] = set()
    found: dict[str, Balloon] = {}
    for name, balloon in balloons.items():
        home = (balloon.home if balloon.kind.fixed else balloon.home - taken) & usable
        taken |= home
        found[name] = replace(balloon, home=home)
    return found


def _named(catalogue: Catalogue, pool: str) -> Balloon | None:
    """The balloon, still empty, that a grant's pool names; None where there is no such type any more."""
    found = fullmatch(r"([^\[\]/]+)\[(0|[1-9]\d{0,5})\]((?:/[^\[\]/]+)*)", pool)
    kind = catalogue.by_name.get(found[1]) if found else None
    if found is None or kind is None:
        return None
    chosen = tuple(found[3].split("/")[1:])
    kind = with_parts(kind, chosen=chosen)
    return Balloon(kind, int(found[2])) if kind.chosen == chosen else None
