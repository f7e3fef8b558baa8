"""Which container has which zone of memory: makes room for new ones, and lets others come back that had to move.

The rules are those of nri-plugins' memory allocator, with two differences: unions of zones that overlap are looked at,
too, and `come_back` returns what was freed to containers that once had to move.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import MemoryKind
from criproxy.placement.alloc.memory.zones import KINDS, Mask, MemoryRequest, Priority, Promises, first_zone


@dataclass(frozen=True)
class Crowd:
    """All containers with memory, by zone. Each is read only where one has to move: there may be hundreds."""

    promises: Promises
    keys: Mapping[Mask, Collection[str]]
    """By zone, in any order."""
    request: Callable[[str], MemoryRequest]
    """By key."""
    order: Iterable[str]
    """All keys, the oldest first."""

    @cached_property
    def ages(self) -> Mapping[str, int]:
        """By key: the older, the less."""
        return {key: place for place, key in enumerate(self.order)}


def allocate(crowd: Crowd, request: MemoryRequest) -> tuple[CpuSet, Mapping[str, CpuSet]]:
    """Find nodes for *request* beside a *crowd* that has no such key, moving some of it if need be.

    Returns:
        The nodes, and those of others that had to move, by key.

    Raises:
        NotEnough: there is no such node, or none with memory for the kernel itself; one sentence.
    """
    memory, moves = crowd.promises.memory, _Moves(crowd)
    accepted, zone = dict(moves.over(memory.all)), first_zone(memory, request)
    moves.put(request, zone)
    moves.relieve(accepted)
    zones = {key: memory.nodes(mask) for key, mask in moves.moved.items()}
    return zones.pop(request.key, memory.nodes(zone)), zones


def come_back(crowd: Crowd, zones: Mapping[str, Mask]) -> Mapping[str, CpuSet]:
    """New zones, by key, of those of a *crowd* whose *zones*, by key, are wider than they need by now.

    The most important come first, then the oldest. Each gets its first zone if that has room again, else the narrowest
    that it grew through and that has.
    """
    memory, moves = crowd.promises.memory, _Moves(crowd)
    requests = [moves.users(zone)[key] for key, zone in zones.items()]
    for request in sorted(requests, key=lambda one: (-one.priority, crowd.ages[one.key])):
        if request.priority is not Priority.RESERVATION:
            moves.narrow(request, zones[request.key])
    return {key: memory.nodes(mask) for key, mask in moves.moved.items()}


class _Moves:
    """A crowd while it moves."""

    def __init__(self, crowd: Crowd) -> None:
        self.memory = crowd.promises.memory
        self.moved: dict[str, Mask] = {}
        self._crowd = crowd
        self._promises = crowd.promises.copy()
        self._users: dict[Mask, dict[str, MemoryRequest]] = {}
        """By zone, those that have been looked at."""
        self._rooms: dict[Mask, int] = {}
        """By zone, what can be promised there as long as no container moves."""
        self._new_key = ""
        self._grown: dict[tuple[CpuSet, frozenset[MemoryKind], Mask], Sequence[Mask]] = {}

    def put(self, request: MemoryRequest, zone: Mask) -> None:
        """Give a new container its first zone."""
        self._new_key = request.key
        self.users(zone)[request.key] = request
        self._promises.add(zone, request.size_bytes)

    def users(self, zone: Mask) -> dict[str, MemoryRequest]:
        """The requests with *zone*."""
        if zone not in self._users:
            self._users[zone] = {key: self._crowd.request(key) for key in self._crowd.keys.get(zone, ())}
        return self._users[zone]

    def _count(self, zone: Mask) -> int:
        users = self._users.get(zone)
        return len(self._crowd.keys.get(zone, ())) if users is None else len(users)

    def _move(self, request: MemoryRequest, old: Mask, new: Mask) -> None:
        users = self.users(old)
        del users[request.key]
        self._promises.take(old, request.size_bytes, last=not users)
        self.users(new)[request.key] = request
        self._promises.add(new, request.size_bytes, at_home=False)
        self.moved[request.key] = new
        self._rooms.clear()

    def over(self, nodes: Mask) -> list[tuple[Mask, int]]:
        """Zones with any of *nodes*, and unions of them, that are over capacity, and by how many bytes.

        Smaller ones come first, then those of more users.
        """
        found = self._promises.over(nodes)
        return sorted(found, key=lambda item: (item[0].bit_count(), -self._count(item[0]), item[0]))

    def relieve(self, accepted: Mapping[Mask, int]) -> None:
        """Move requests until nothing is over capacity by more than is *accepted* of a zone, or no container can move.

        In rounds: first those up to Burstable move, then Guaranteed ones; and each time first within the kinds of
        memory that their zones have, then to DRAM, PMEM and HBM, too. Where none of a zone's own users can move, those
        with a part of it do.
        """
        over, inside = self._beyond(accepted), False
        while over:
            moved = False
            for limit in (Priority.BURSTABLE, Priority.GUARANTEED):
                for kinds in self._stages():
                    for zone, size in over:
                        moved |= self._shrink(zone, size, limit, kinds, inside=inside)
                    over = self._beyond(accepted)
                    if not over:
                        return
            if not moved and inside:
                return
            inside = not moved

    def _beyond(self, accepted: Mapping[Mask, int]) -> list[tuple[Mask, int]]:
        beyond = [(zone, size - accepted.get(zone, 0)) for zone, size in self.over(self.memory.all)]
        return [(zone, size) for zone, size in beyond if size > 0]

    def _stages(self) -> list[frozenset[MemoryKind]]:
        there = [kind for kind in KINDS if self.memory.of_kind[kind]]
        return [frozenset(there[:count]) for count in range(len(there) + 1)]

    def _shrink(
        self, zone: Mask, size_bytes: int, limit: Priority, extra: frozenset[MemoryKind], *, inside: bool
    ) -> bool:
        """Move requests of at most priority *limit* out of *zone* until *size_bytes* are free; whether any moved."""
        more, freed = self.memory.expand(zone, self.memory.kinds(zone) | extra), 0
        if not more:
            return False
        for request, part in self._by_willingness(zone, limit, inside=inside):
            if freed >= size_bytes:
                break
            self._move(request, part, zone | more)
            freed += request.size_bytes
        return freed > 0

    def _by_willingness(self, zone: Mask, limit: Priority, *, inside: bool) -> list[tuple[MemoryRequest, Mask]]:
        """Users of *zone* and what they have, the least important first, then the smallest, then the youngest.

        Those that count nothing move, too, as with nri-plugins: what they use beside the promises then has other nodes.
        With *inside* also those of its parts, of the widest part first. A union of zones has none but these.
        """
        parts = [zone]
        if inside or zone not in self._promises.used:
            within = (part for part in self._promises.used if not part & ~zone)
            parts = sorted(within, key=lambda part: (-part.bit_count(), part))
        found: list[tuple[MemoryRequest, Mask]] = []
        for part in parts:
            willing = [(request, part) for request in self.users(part).values() if request.priority <= limit]
            found += sorted(willing, key=lambda r: (r[0].priority, r[0].size_bytes, -self._age(r[0].key)))
        return found

    def _age(self, key: str) -> float:
        return inf if key == self._new_key else self._crowd.ages[key]

    def narrow(self, request: MemoryRequest, had: Mask) -> None:
        """Give *request* the narrowest of the zones that it grew through which has room now."""
        for zone in self._growth(request, had):
            if zone not in self._rooms:
                self._rooms[zone] = self._promises.room_bytes(zone)
            if self._rooms[zone] < request.size_bytes:
                continue  # the most frequent case is the cheapest to see
            self._move(request, had, zone)
            if not self.over(zone):
                return
            self._move(request, zone, had)
            del self.moved[request.key]

    def _growth(self, request: MemoryRequest, limit: Mask) -> Sequence[Mask]:
        """The zones of *request* from its first one on, as far as they lie within *limit* and are not that."""
        place = request.nodes, request.kinds, limit
        if place not in self._grown:
            found: list[Mask] = []
            try:
                zone = first_zone(self.memory, request)
            except NotEnough:  # the machine has changed since
                zone = limit
            while zone != limit and not zone & ~limit:
                found.append(zone)
                zone = self.memory.grown(zone)
            self._grown[place] = found
        return self._grown[place]
