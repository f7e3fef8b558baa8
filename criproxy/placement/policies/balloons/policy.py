"""The policy ``balloons``: containers in groups of CPUs that grow and shrink with the requests of their containers."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from criproxy.model.cpuset import CpuSet, interned, numbered, united
from criproxy.model.grant import NO_CPUS, Change, Grant
from criproxy.model.node import Node, without
from criproxy.model.text.amounts import counted
from criproxy.model.workload import Container
from criproxy.placement.alloc.cpus import one_per_core
from criproxy.placement.alloc.memory.place_memory import MemoryWish, place_memory, return_memory
from criproxy.placement.alloc.rank import Candidate, Candidates, Criterion, Row, Unit, compared, ranked
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.match_keys import attribute_of
from criproxy.placement.options.pod_wishes import HIDE, hiding_of, memory_wish
from criproxy.placement.policies.balloons.balloon_choice import Filled, Filling, Way, kind_of
from criproxy.placement.policies.balloons.balloon_cpus import with_parts
from criproxy.placement.policies.balloons.fields import ANNOTATION, DEFAULT
from criproxy.placement.policies.balloons.kinds import Kind, catalogue
from criproxy.placement.policies.balloons.options import BalloonsOptions
from criproxy.placement.policies.balloons.state import Balloon, State, asked_milli, read, worth_keeping
from criproxy.placement.policies.parts import left_alone

OF, STAYS = "balloons", "it is already there"


class BalloonsPolicy:
    """Containers in balloons: disjoint groups of CPUs that grow and shrink with the requests of their containers."""

    def __init__(self, options: BalloonsOptions) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Change:
        """The best balloon of its type, which grows for it, and where safe the memory next to its CPUs.

        A container that has a place stays in its balloon if that can get the size that it needs now.
        """
        node = self.options.within(node)
        wishes = Wishes(node, container, self.options)
        if why := self._left_alone(node, container, wishes):
            return left_alone(self, node, container, (f"{container.title} is left alone: {why}", *wishes.notes()))
        filling, stays = self._search(node, wishes)
        kind, (balloon, why) = filling.kind, stays or filling.fill()
        after = filling.state.with_balloon(balloon).settled()
        hide = wishes.boolean(HIDE)
        cpus = self._cpus(after, balloon, node, hide=kind.type.hide_hyperthreads if hide is None else hide)
        grants = {container.key: _grant(balloon, cpus, node.grants.get(container.key, Grant(NO_CPUS, NO_CPUS)))}
        grants |= self._repinned(after, node, {**node.grants, **grants}, container.key)
        pin = self.options.pin_memory if kind.type.pin_memory is None else kind.type.pin_memory
        wish = memory_wish(wishes, MemoryWish(frozenset(kind.type.memory_types), usual=frozenset()), pinned=pin)
        change = place_memory(node, grants, container, node.topology.nodes_of(cpus), wish)
        return Change(change.grants, (_reason(container, balloon, why, cpus), *change.reasons, *wishes.notes()))

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """The balloons of its type; None for a container that is left alone.

        Raises:
            BadAnnotation: its pod asks for something in a way that cannot be understood.
        """
        node = self.options.within(node)
        wishes = Wishes(node, container, self.options)
        if self._left_alone(node, container, wishes):
            return None
        filling, stays = self._search(node, wishes)
        note = _why_kind(filling.kind, wishes)
        if stays:  # no other balloon is compared
            name = stays[0].name
            return Candidates(OF, (), (Row(name, note=STAYS),), name, note)
        return balloons_compared(filling, note)

    def _search(self, node: Node, wishes: Wishes) -> tuple[Filling, Filled | None]:
        """The search of a container for a balloon next to its memory; and its own one, if that has room for it."""
        container, types = wishes.container, catalogue(self.options, node.topology)
        kind, had, state = kind_of(types, wishes), node.grants.get(container.key), read(types, node, node.grants)
        own = state.balloons.get(had.pool) if had else None
        own = own if own and container.key in own.keys else None
        if own is None or own.kind.index != kind.index:
            return Filling(node, _others(state, node, own, container), container, kind), None
        keys = tuple(key for key in own.keys if key != container.key)
        shrunk = replace(own, milli=own.milli - asked_milli(container), keys=keys)
        if joined := Filling(node, state.with_balloon(shrunk), container, kind).joined(shrunk):
            return Filling(node, state, container, kind), (replace(joined, keys=own.keys), STAYS)
        near = node.topology.nodes_of(own.home)
        return Filling(node, _others(state, node, own, container), container, kind, near, own), None

    def release(self, node: Node, left: Grant) -> Change:
        """Its balloon shrinks, and goes with its last container."""
        node = self.options.within(node)
        state = read(catalogue(self.options, node.topology), node, node.grants)
        if (balloon := state.balloons.get(left.pool)) and balloon.keys:
            state = state.with_balloon(_fitted(state, balloon, node)).settled()
        return return_memory(node, self._repinned(state, node, node.grants))

    def empty_pools(self, node: Node) -> Mapping[str, CpuSet]:
        """Balloons that have to be there (minBalloons)."""
        node = self.options.within(node)
        state = read(catalogue(self.options, node.topology), node, node.grants)
        return {balloon.name: balloon.home for balloon in state.balloons.values() if not balloon.keys and balloon.home}

    def _left_alone(self, node: Node, container: Container, wishes: Wishes) -> str:
        if wishes.boolean("cpu.preserve"):
            return "its pod asks for that (cpu.preserve)"
        expressions = self.options.preserve.match_expressions
        if expressions and any(each.matches(attribute_of(node, container)) for each in expressions):
            return "it matches preserve.matchExpressions"
        return ""

    def _cpus(self, state: State, balloon: Balloon, node: Node, *, hide: bool) -> CpuSet:
        """The CPUs for a container in *balloon*: its own, and idle ones that are lent to it."""
        if not self.options.pin_cpu:
            return interned(state.usable or node.topology.cpus)
        cpus = united(balloon.home, state.lent(balloon))
        return interned(one_per_core(node.topology, cpus)) if hide else cpus

    def _repinned(self, state: State, node: Node, grants: Mapping[str, Grant], key: str = "") -> dict[str, Grant]:
        """The new grants of all but *key* whose CPUs are not those that their balloon has now."""
        changed: dict[str, Grant] = {}
        for balloon in state.balloons.values():
            if balloon.keys and balloon.home:
                changed.update(self._repinned_in(balloon, state, node, grants, key))
        return changed

    def _repinned_in(
        self, balloon: Balloon, state: State, node: Node, grants: Mapping[str, Grant], key: str
    ) -> Mapping[str, Grant]:
        whole = self._cpus(state, balloon, node, hide=False)
        home = NO_CPUS if whole == balloon.home else balloon.home
        plain = self.options.pin_cpu and not home and not balloon.kind.type.hide_hyperthreads
        there = all(grants[key].cpus is whole and grants[key].home == home for key in balloon.keys)
        if there and plain:
            return {}
        hidden = self._hiding(node, balloon)
        if there and not hidden:
            return {}
        cpus = {hide: self._cpus(state, balloon, node, hide=hide) if hide else whole for hide in {False, bool(hidden)}}
        # Containers with the same memory share one grant, which is made once.
        made: dict[tuple[int, int, bool], Grant] = {}
        changed: dict[str, Grant] = {}
        for other in balloon.keys:
            grant, hide = grants[other], other in hidden
            if other == key or (plain and grant.cpus is whole and not grant.home and not hide):
                continue
            place = id(grant.mems), id(grant.home_mems), hide
            if place not in made:
                made[place] = _grant(balloon, cpus[hide], grant)
            new = made[place]
            if grant.cpus != new.cpus or grant.home != new.home or grant.pool != new.pool:
                changed[other] = new
        return changed

    def _hiding(self, node: Node, balloon: Balloon) -> Collection[str]:
        """The containers of *balloon* that see one thread of each core only."""
        default, containers = balloon.kind.type.hide_hyperthreads, node.containers
        if not (saying := hiding_of(self.options).annotated_pods(node)):
            return balloon.keys if default else ()
        own = {key for key in balloon.keys if key in containers and containers[key].pod in saying}
        said = {key: hiding_of(self.options).hides(node, containers[key]) for key in own}
        hiding = {key for key, hides in said.items() if (default if hides is None else hides)}
        return (set(balloon.keys) - own) | hiding if default else hiding


def _others(state: State, node: Node, own: Balloon | None, container: Container) -> State:
    """The balloons of *state* without the container, after it has left its *own*, which shrinks."""
    if container.key not in node.grants:
        return state
    others = read(state.catalogue, node, without(node.grants, (container.key,)))
    left = others.balloons.get(own.name) if own else None
    return others.with_balloon(_fitted(others, left, node)).settled() if left and left.keys else others


def _fitted(state: State, balloon: Balloon, node: Node) -> Balloon:
    """*balloon* with the size that its containers need, as far as there are CPUs, if possible next to their memory."""
    sizes = balloon.kind.sizes(balloon.milli)
    if balloon.kind.fixed or sizes is None or sum(sizes) > len(balloon.home | state.free):
        return balloon
    return state.resize(balloon, sizes, rather=worth_keeping(node, balloon, sizes))


def _grant(balloon: Balloon, cpus: CpuSet, memory: Grant) -> Grant:
    """A grant of *cpus* in *balloon* with the memory of another."""
    home = interned(balloon.home)
    home = NO_CPUS if home == cpus else home
    return Grant(cpus, memory.mems, pool=balloon.name, home=home, home_mems=memory.home_mems)


def _reason(container: Container, balloon: Balloon, why: str, cpus: CpuSet) -> str:
    lent = cpus - balloon.home
    also = f" and on idle {numbered('CPU', lent)}" if lent else ""
    asks = f"{balloon.milli}m" if balloon.milli else "nothing"
    runs = f"{container.title} runs in balloon {balloon.name} on {numbered('CPU', cpus - lent)}{also}"
    return f"{runs}: {why}; its {len(balloon.keys)} containers ask for {asks}"


def _why_kind(kind: Kind, wishes: Wishes) -> str:
    """Why a container goes into balloons of a type."""
    if wishes.text(ANNOTATION) is not None:
        return f"its pod names the balloon type {kind.name}"
    return f"{'no balloon type but' if kind.name == DEFAULT else 'balloon type'} {kind.name} matches it"


def balloons_compared(filling: Filling, note: str) -> Candidates:
    """The balloons of a type, and a new one: by the way in which each is found, and by room."""
    if filling.kind.refused:
        return Candidates(OF, note=f"{note}, whose maxCPUs is -1")
    found = {balloon.name: (balloon, _lacks(filling, balloon)) for balloon in filling.all()}
    ways = list(filling.ways())
    new = filling.empty()
    if new and new.name not in found:
        found[new.name] = new, _lacks(filling, new)
    lacking = [Row(name, lacks=text) for name, (_, text) in found.items() if text]
    lacking += [] if new else [Row(f"a new {filling.kind.name}", lacks=_lacks_new(filling))]
    fitting = {name: balloon for name, (balloon, text) in found.items() if not text}
    by_name = {name: way for name, each in fitting.items() if (way := _first_way(filling, ways, each, new))}
    lacking += [Row(name, lacks="closeness to its devices") for name in fitting if name not in by_name]
    order = ranked(_candidate(filling, fitting[name], *way) for name, way in by_name.items())
    return compared(OF, order, lacking, note=note)


def _first_way(filling: Filling, ways: list[Way], balloon: Balloon, new: Balloon | None) -> tuple[int, Way] | None:
    """The first of *ways* that finds a balloon, and its place; None where it must be elsewhere."""
    joined = filling.joined(balloon) or balloon
    found = ((place, way) for place, way in enumerate(ways) if balloon.name in _names(way, new))
    return next(((place, way) for place, way in found if filling.is_there(way, joined)), None)


def _names(way: Way, new: Balloon | None) -> Iterator[str]:
    if way.balloons is not None:
        yield from (balloon.name for balloon in way.balloons)
    elif new is not None:
        yield new.name


def _candidate(filling: Filling, balloon: Balloon, place: int, way: Way) -> Candidate:
    room, few, instance = filling.order(balloon, inflated=way.inflated)
    criteria = (
        Criterion("an earlier rule finds it", place, Unit.FEWER),
        Criterion("it has more room", room, Unit.MORE_MILLI),
        Criterion("it has fewer containers", few, Unit.FEWER),
    )
    return Candidate(instance, balloon.name, criteria, way.why)


def _lacks(filling: Filling, balloon: Balloon) -> str:
    """What a balloon has not that the container would need; empty where it has room."""
    if filling.kind.fixed:
        return "" if balloon.home else "CPUs"
    milli = balloon.milli + asked_milli(filling.container)
    sizes = balloon.kind.sizes(milli)
    missing = 0 if sizes is None else filling.missing_cpus(balloon, sizes)
    if filling.joined(balloon) is not None:
        return ""
    if sizes is None:
        return _over(balloon.kind, milli)
    return counted(missing, "CPU") if missing > 0 else "the NUMA nodes of its memory"


def _lacks_new(filling: Filling) -> str:
    """Why there can be no new balloon."""
    if filling.is_full:
        return f"a place: maxBalloons allows no more than {filling.kind.type.max_balloons}"
    milli = max(asked_milli(filling.container), 1)
    kind = with_parts(filling.kind, filling.state.counts() if filling.kind.chooses else {})
    sizes = kind.sizes(milli)
    return _over(kind, milli) if sizes is None else counted(sum(sizes) - len(filling.state.free), "CPU")


def _over(kind: Kind, milli: int) -> str:
    """What is too much for the largest balloon; a composite one may be too large in one of its parts only."""
    limit = kind.limit or 0
    over = milli - 1000 * limit
    return f"{over}m: its type allows {limit} CPUs" if over > 0 else "CPUs that its parts may have"
