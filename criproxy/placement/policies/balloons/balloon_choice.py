"""Which balloon a container goes into: the first of several ways to fill balloons that finds one with room.

Where none has, the sentence that refuses it says why.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from re import findall, sub

from criproxy.errors import BadAnnotation, NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import Container
from criproxy.placement.alloc.affinity.expressions import Attribute, joint_value, keys_of
from criproxy.placement.alloc.cpus import circles
from criproxy.placement.alloc.locality import CpuSets
from criproxy.placement.options.annotation_keys import matches_one
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.match_keys import attribute_of
from criproxy.placement.options.pod_wishes import hints_of, near_words, nodes_of
from criproxy.placement.policies.balloons.fields import ANNOTATION, DEFAULT, RESERVED
from criproxy.placement.policies.balloons.kinds import Catalogue, Kind
from criproxy.placement.policies.balloons.state import Balloon, State, asked_milli, members, worth_keeping

_MAX_NAME_CHARS = 400


Filled = tuple[Balloon, str]
"""A balloon that has the container, and why that one."""


@dataclass(frozen=True, slots=True)
class Way:
    """One of the ways to find a balloon."""

    why: str
    """Half a sentence about the balloon that is found."""
    balloons: Collection[Balloon] | None = None
    """The balloons to choose from; None: an empty one or a new one."""
    inflated: bool = False
    """Whether the size to which they can grow counts, and not their size now."""
    near: CpuSet | None = None
    """The NUMA nodes on which the balloon must be with the container in it; None: any."""


@dataclass(frozen=True)
class Filling:
    """The search of one container for a balloon of one type."""

    node: Node
    """With the container in it."""
    state: State
    """Without it."""
    container: Container
    kind: Kind
    within: CpuSet = NO_CPUS
    """The NUMA nodes of its memory, next to which its balloon must be; empty: any."""
    own: Balloon | None = None
    """The balloon of this type that it is in."""

    def fill(self) -> Filled:
        """The best balloon with the container in it.

        Raises:
            NotEnough: none has room, and there can be no new one.
        """
        for way in self.ways() if not self.kind.refused else ():
            if found := self._first(way):
                return found, way.why
        own, stays = self.own, ""
        if own:
            where = f"{own.name} on {numbered('CPU', own.home)}"
            stays = f"; it is in {where}, and moves to no other NUMA node"
        raise NotEnough(f"container {self.container.title} {self._refusal()}{stays}")

    def joined(self, balloon: Balloon) -> Balloon | None:
        """*balloon* with the container in it and the size that it needs then; None where there is no room."""
        milli = balloon.milli + asked_milli(self.container)
        keys = (*balloon.keys, self.container.key)
        joined = Balloon(balloon.kind, balloon.instance, balloon.home, milli, keys)
        if self.kind.fixed:
            return joined if joined.home else None
        sizes = balloon.kind.sizes(milli)
        if sizes is None or self.missing_cpus(balloon, sizes) > 0:
            return self._overbooked(joined) if self.kind.overbooked else None
        rather = worth_keeping(self.node, joined, sizes)
        state, near = self.state, self._device_cpus(balloon)
        if self.kind.name == RESERVED and not balloon.keys:  # an empty one may move
            state, joined = state.crowded(), replace(joined, home=NO_CPUS)
            near = (self.state.catalogue.counted, *near)
        joined = state.resize(joined, sizes, near, rather)
        return None if self.within and not self.node.topology.nodes_of(joined.home) <= self.within else joined

    def missing_cpus(self, balloon: Balloon, sizes: Sequence[int]) -> int:
        """How many CPUs there are too few for a balloon to get these sizes; 0 or less where there are enough."""
        return sum(sizes) - len(balloon.home | self.state.free)

    def _overbooked(self, balloon: Balloon) -> Balloon | None:
        """As large as it can be: CRI-RM's default balloon takes every container as long as it has a CPU."""
        each, more = divmod(self._most_cpus(balloon), len(balloon.kind.leaves))
        sizes = tuple(each + (place < more) for place in range(len(balloon.kind.leaves)))
        full = self.state.resize(balloon, sizes)
        return full if full.home else None

    def is_there(self, way: Way, balloon: Balloon) -> bool:
        """Whether *balloon*, with the container in it, is where a way looks."""
        return way.near is None or self.node.topology.nodes_of(balloon.home) <= way.near

    def _hints_of(self, container: Container) -> tuple[CpuSets, bool]:
        """The NUMA nodes next to its devices, and whether it must be there; see `placement.options.pod_wishes`."""
        if not container.hints:
            return (), False
        try:
            return hints_of(Wishes(self.node, container, self.state.catalogue.options))
        except BadAnnotation:
            if container is self.container:
                raise
            return container.hints, False  # an adopted container, which cannot be refused

    def _device_cpus(self, balloon: Balloon | None = None) -> CpuSets:
        """The CPUs next to the devices of the container and of those in a *balloon*.

        The first sets have those around as well, by distance; the last one is that of the nearest.
        """
        others = members(self.node, balloon.keys) if balloon else ()
        hints = (self._hints_of(each)[0] for each in (self.container, *others))
        near = NO_CPUS.union(*chain.from_iterable(hints))
        if not near:
            return ()
        parts = circles(self.node.topology, near)
        return tuple(reversed(parts[:-1] or parts))

    def ways(self) -> Iterator[Way]:
        """The ways to fill balloons, the best first: next to the container's devices, then further and further away."""
        (hints, strict), topology = self._hints_of(self.container), self.node.topology
        if not hints:
            yield from self._plain_ways()
            return
        why = "it is next to its devices"
        for cpus in circles(topology, nodes_of(hints))[: 1 if strict else None]:
            for way in self._plain_ways():
                yield replace(way, near=topology.nodes_of(cpus), why=f"{why}, and {way.why}")
            why = "it is as close to its devices as possible"
        if not strict:  # CPUs may be on no NUMA node
            yield from self._plain_ways()

    def _plain_ways(self) -> Iterator[Way]:
        kind = self.kind.type
        if self.kind.overbooked or self.kind.fixed:
            yield Way("it is the only one of its type")
        if kind.group_by:
            shown = expanded(kind.group_by, attribute_of(self.node, self.container))
            group = self._group(self.container)
            yield Way(f"its group {shown} is there", self._with(lambda container: self._group(container) == group))
        if not kind.prefer_spreading_pods:
            yield Way("its pod is there", self._with(lambda c: c.pod == self.container.pod))
        if kind.prefer_per_namespace_balloon:
            yield Way("its namespace is there", self._with(lambda c: c.namespace == self.container.namespace))
            yield Way("its namespace has its own")
        new = Way("new ones are preferred")
        if kind.prefer_new_balloons:
            yield new
        asked = asked_milli(self.container)
        yield Way("it has the most room", [b for b in self.all() if b.free_milli >= asked])
        yield Way("it can grow the most", self.all(), inflated=True)
        if not kind.prefer_new_balloons:
            yield Way("no other one has room")

    def all(self) -> Sequence[Balloon]:
        """The balloons of its type."""
        return self.state.of(self.kind)

    def _with(self, matches: Callable[[Container], bool]) -> list[Balloon]:
        """The balloons with such a container."""
        containers = self.node.containers
        return [b for b in self.all() if any(key in containers and matches(containers[key]) for key in b.keys)]

    def _group(self, container: Container) -> tuple[str, ...]:
        """The values of the keys, one by one: joined, a label of one pod could equal the namespace of another."""
        attribute = attribute_of(self.node, container)
        keys = chain.from_iterable(map(keys_of, keys_in(self.kind.type.group_by)))
        return tuple(attribute(key) or "" for key in keys)

    def order(self, balloon: Balloon, *, inflated: bool) -> tuple[int, int, int]:
        """The sort key of balloons: the most room, then the fewest containers; negative is more."""
        room = 1000 * self._most_cpus(balloon) - balloon.milli if inflated else balloon.free_milli
        few = len(balloon.keys) if self.state.catalogue.options.rules == "nri" else 0
        return -room, few, balloon.instance

    def _first(self, way: Way) -> Balloon | None:
        """The first balloon of a way that has room, with the container in it."""
        balloons = way.balloons
        if balloons is None:
            balloons = [empty] if (empty := self.empty()) else []
        for balloon in sorted(balloons, key=lambda balloon: self.order(balloon, inflated=way.inflated)):
            if (joined := self.joined(balloon)) is not None and self.is_there(way, joined):
                return joined
        return None

    def _most_cpus(self, balloon: Balloon) -> int:
        most, limit = len(balloon.home | self.state.free), balloon.kind.limit
        return most if limit is None else min(most, limit)

    def empty(self) -> Balloon | None:
        """An empty balloon that is there already, else a new one; None where there can be none."""
        for balloon in self.all():
            if not balloon.keys or self.kind.overbooked:
                return balloon
        if self.is_full:
            return None
        milli, had = max(asked_milli(self.container), 1), self.node.grants.get(self.container.key)
        where_it_is = (had.cpus, self.node.topology.cpus_of(had.mems)) if had else ()  # its memory does not move
        return self.state.new(self.kind, milli, self._device_cpus(), where_it_is)

    @property
    def is_full(self) -> bool:
        """Whether there are as many balloons of its type as there may be."""
        return bool(self.kind.type.max_balloons) and len(self.all()) >= self.kind.type.max_balloons

    def _refusal(self) -> str:
        if self.kind.refused:
            return f"may not run here: maxCPUs of balloon type {self.kind.name} is -1"
        kind, free, existing = self.kind.type, self.state.free, self.all()
        limit = f" (at most {kind.max_cpus} CPUs)" if kind.max_cpus > 0 else ""
        have = "; ".join(f"{b.name} has {max(b.free_milli, 0)}m left" for b in existing[:4])
        more = f" and {len(existing) - 4} more" if len(existing) > 4 else ""
        parts = [have + more]
        could_grow = any(b.kind.limit is None or b.kind.limit > len(b.home) + len(free) for b in existing)
        if could_grow or not self.is_full:
            cpus = f"{len(free)} CPUs are in no balloon" + (f" ({format_cpuset(free)})" if free else "")
            too_few = kind.min_cpus > len(free) and not self.is_full
            parts.append(cpus + (f", and a new one has at least {kind.min_cpus}" if too_few else ""))
        if self.is_full:
            parts.append(f"maxBalloons allows no more than {kind.max_balloons}")
        hints, strict = self._hints_of(self.container)
        if strict:
            parts.insert(0, f"it must be close to its devices on {near_words(hints)}")
        asks = f"asks for {asked_milli(self.container)}m, but no balloon of type {kind.name}{limit} has room"
        return f"{asks}: {'; '.join(part for part in parts if part)}"


def kind_of(catalogue: Catalogue, wishes: Wishes) -> Kind:
    """The type of the balloon for a container: by annotation, else the first type that it fits, else the default one.

    Raises:
        BadAnnotation: the annotation names a type that there is not, or that its namespace may not name.
    """
    kind, reserved = _named(catalogue, wishes) or _matching(catalogue, wishes), catalogue.by_name[RESERVED]
    # CRI-RM gives the default balloon CPUs of its own if it has a size; otherwise it has the reserved ones.
    has_own_size = kind.type.min_cpus or kind.type.max_cpus
    return reserved if kind.name == DEFAULT and reserved.fixed and not has_own_size else kind


def _named(catalogue: Catalogue, wishes: Wishes) -> Kind | None:
    """The type that its annotation names; None where it names none, or one that is ignored."""
    name, container = wishes.text(ANNOTATION), wishes.container
    if name == RESERVED and not _may_have_reserved(catalogue, container):
        text = f"its namespace may not use the balloon type {RESERVED!r}: annotations.allow does not permit it"
        wishes.ignored.append(text)
        return None
    if name is None:
        return None
    names = f"container {container.title}: annotation {wishes.name_of(ANNOTATION)} names balloon type"
    if (kind := catalogue.by_name.get(name)) is None:
        text = f"{bounded_text(repr(name), _MAX_NAME_CHARS)}, which does not exist; types are: "
        raise BadAnnotation(f"{names} {text}{', '.join(catalogue.by_name)}")
    patterns = kind.type.annotation_namespaces
    if patterns and not matches_one(container.namespace, patterns):
        text = f"{names} {kind.name!r}, which only pods of the namespaces {', '.join(patterns)} may name"
        raise BadAnnotation(text)
    return kind


def _matching(catalogue: Catalogue, wishes: Wishes) -> Kind:
    """The first type that a container fits, else the default one."""
    container, attribute = wishes.container, attribute_of(wishes.node, wishes.container)
    for kind in catalogue.kinds:
        if any(expression.matches(attribute) for expression in kind.type.match_expressions):
            return kind
        if matches_one(container.namespace, kind.type.namespaces):
            return kind
    return catalogue.by_name[DEFAULT]


def _may_have_reserved(catalogue: Catalogue, container: Container) -> bool:
    """Whether it may name the type of the reserved balloon, whose CPUs keep the node alive."""
    options, kind = catalogue.options, catalogue.by_name[RESERVED].type
    if options.annotations.allow or kind.annotation_namespaces:
        return True
    return matches_one(container.namespace, (*options.reserved_namespaces, *kind.namespaces))


_KEY = r"\$(?:\{([^}]*)\}|([\w/.-]+))"


def expanded(template: str, attribute: Attribute) -> str:
    """*template* with the values of its keys: ``${pod/labels/app}`` or ``$pod/namespace``; none is the empty text."""
    return sub(_KEY, lambda m: joint_value(m[1] or m[2] or "", attribute) or "", template)


def keys_in(template: str) -> list[str]:
    """The keys of which `expanded` takes the value."""
    return [braced or plain for braced, plain in findall(_KEY, template)]
