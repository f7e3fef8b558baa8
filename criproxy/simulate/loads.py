"""Loads, whichever way they are written: as a specification, whose events are made here, or as a trace of a real node.

The events of a specification are pods that come at random times, live a while and go; all chance is the seed's.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path

from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.placement import events
from criproxy.placement.options.pod_wishes import cold_start_s
from criproxy.placement.records.trace import Header, Traced, is_header, parse_header, parse_line
from criproxy.simulate.load import PERCENT, Kind, Load, Spec, read_spec
from criproxy.simulate.scenario.place import unreadable

Cards = Sequence[CpuSet]
"""For each card the NUMA nodes next to it; none where nobody knows."""


def cards_of(spec: Spec, topology: Topology, name: str) -> Cards:
    """The cards that *spec* puts into the machine *topology*.

    Raises:
        UsageError: pods ask for cards of which there are none, or cards are where there is no NUMA node.
    """
    cards = _placed(spec.cards, topology)
    if not cards and any(kind.cards for kind in spec.kinds):
        raise UsageError(
            f"pods of the load {name} ask for cards, and there are none: write cards: 8 in it, "
            "or give a --host-root that has accelerators"
        )
    if unknown := sorted({number for card in cards for number in card} - topology.node_by_id.keys()):
        raise UsageError(f"the load {name} has cards on NUMA node {unknown[0]}, which its machine does not have")
    return cards


def _placed(cards: int | Mapping[int, int], topology: Topology) -> Cards:
    if isinstance(cards, int):
        homes = [node.id for node in topology.nodes if node.cpus]
        return [frozenset({homes[place * len(homes) // cards]}) for place in range(cards if homes else 0)]
    return [frozenset({number}) for number, count in cards.items() for _ in range(count)]


@dataclass(slots=True)
class Deck:
    """Cards that are free, and who has the others."""

    free: list[CpuSet]
    _given: dict[str, list[CpuSet]] = field(default_factory=dict)

    def give(self, pod: str, count: int) -> list[CpuSet]:
        """So many cards for a container of *pod*: of as few places as possible, and of those with the most left.

        There are so many.
        """
        given: list[CpuSet] = []
        while len(given) < count:
            missing = count - len(given)
            counts = {place: self.free.count(place) for place in dict.fromkeys(self.free)}
            place = max(counts, key=lambda each: (min(counts[each], missing), counts[each]))
            for _ in range(min(missing, counts[place])):
                self.free.remove(place)
                given.append(place)
        self._given.setdefault(pod, []).extend(given)
        return given

    def take_back(self, pod: str) -> None:
        """*pod* has ended."""
        self.free += self._given.pop(pod, [])


def make(spec: Spec, topology: Topology | None, name: str, cards: Cards = ()) -> Load:
    """The load of *spec* on *topology*, or on its own machine.

    Args:
        spec: what to make.
        topology: the machine; None takes that of *spec*.
        name: of the load.
        cards: those of the machine; none takes those of *spec*.

    Raises:
        UsageError: there is no machine, or no card for those who ask for some.
    """
    machine = topology or spec.topology
    if machine is None:
        raise UsageError(f"the load {name} names no machine: write machine: in it, or give --machine or --host-root")
    making = _Making(spec, machine, cards or cards_of(spec, machine, name))
    making.run()
    return Load(name, machine, tuple(making.events), spec.duration_s, making.turned_away)


@dataclass(frozen=True, slots=True, order=True)
class _End:
    """What becomes of a pod, or of a container of it, later."""

    at_s: float
    serial: int
    pod: str
    cold: str = ""
    """The container whose cold start ends then; empty where the pod ends."""


class _Making:
    """The events so far, and what is still to come."""

    def __init__(self, spec: Spec, topology: Topology, cards: Cards) -> None:
        self.events: list[Traced] = []
        self._deck = Deck(list(cards))
        self.turned_away = 0
        self._spec = spec
        self._capacity_bytes = topology.capacity_bytes
        room = (len(topology.cpus) * 1000, topology.memory_bytes(topology.mems))
        self._room = tuple(amount * spec.fill_percent // PERCENT for amount in room)
        self._asked = (0, 0)
        self._of_pod: dict[str, tuple[int, int]] = {}
        self._ends: list[_End] = []
        self._serial = 0

    def run(self) -> None:
        """Let pods come until the time is over."""
        chance = random.Random(self._spec.seed)  # noqa: S311 (no secret)
        kinds, weights = self._spec.kinds, [kind.weight for kind in self._spec.kinds]
        at_s = chance.expovariate(1 / self._spec.every_s)
        while at_s < self._spec.duration_s:
            kind = chance.choices(kinds, weights)[0]
            life_s = chance.expovariate(1 / kind.lifetime_s)
            self._end_until(at_s)
            self._arrive(kind, at_s, life_s)
            at_s += chance.expovariate(1 / self._spec.every_s)
        self._end_until(self._spec.duration_s)

    def _arrive(self, kind: Kind, at_s: float, life_s: float) -> None:
        plan = kind.plan
        asks = plan.most(lambda each: each.cpu_request_milli), plan.most(lambda each: each.memory_request_bytes)
        cards = kind.cards * sum(not container.init for container in plan.containers)
        total = (self._asked[0] + asks[0], self._asked[1] + asks[1])
        if total[0] > self._room[0] or total[1] > self._room[1] or cards > len(self._deck.free):
            self.turned_away += 1
            return
        self._serial += 1
        sandbox = f"{plan.name}-{self._serial}"
        self._asked, self._of_pod[sandbox] = total, asks
        self.events += [Traced(at_s, event) for event in self._births(kind, sandbox)]
        for container in plan.containers:
            cold_s = cold_start_s(plan.annotations, container.name)
            if cold_s is not None and cold_s < life_s:
                heappush(self._ends, _End(at_s + cold_s, self._serial, sandbox, _key(sandbox, container.name)))
        heappush(self._ends, _End(at_s + life_s, self._serial, sandbox))

    def _births(self, kind: Kind, sandbox: str) -> Iterator[events.Event]:
        plan = kind.plan
        pod = plan.pod(sandbox, sandbox)
        yield events.PodCreated(pod)
        for planned in plan.containers:
            key = _key(sandbox, planned.name)
            cards = [] if planned.init else self._deck.give(sandbox, kind.cards)
            yield events.ContainerCreating(
                planned.container(f"r-{key}", pod, self._capacity_bytes, filter(None, cards))
            )
            yield events.ContainerCreated(f"r-{key}", key)
            yield events.ContainerStarted(key)
            if planned.init:
                yield events.ContainerExited(key)

    def _end_until(self, at_s: float) -> None:
        while self._ends and self._ends[0].at_s <= at_s:
            end = heappop(self._ends)
            if end.cold:
                self.events.append(Traced(end.at_s, events.ColdStartEnded(end.cold)))
                continue
            self._deck.take_back(end.pod)
            gone = self._of_pod.pop(end.pod)
            self._asked = (self._asked[0] - gone[0], self._asked[1] - gone[1])
            self.events += [Traced(end.at_s, events.PodStopped(end.pod)), Traced(end.at_s, events.PodGone(end.pod))]


def _key(sandbox: str, name: str) -> str:
    return f"{sandbox}/{name}"


TRACE_SUFFIX = ".jsonl"
_HEAD_BYTES = 64


def read_load(file: Path, topology: Topology | None = None, cards: Cards = ()) -> Load:
    """The load of *file*, a trace or a specification: see `is_trace`.

    Args:
        file: to read.
        topology: the machine; None takes that of the file.
        cards: those of the machine, for a specification; none takes those of the file.

    Raises:
        UsageError: it cannot be read or used; the text names the place.
    """
    if is_trace(file):
        return _replayed(file, topology)
    return make(read_spec(file), topology, file.stem, cards)


def is_trace(file: Path) -> bool:
    """Whether the load of *file* is a trace, by its name or by the first line of its content."""
    if file.suffix == TRACE_SUFFIX:
        return True
    with suppress(OSError):  # whoever reads all of it says what is wrong
        if file.is_file():
            with file.open("rb") as source:
                return is_header(source.read(_HEAD_BYTES))
    return False


def _replayed(file: Path, topology: Topology | None) -> Load:
    """What a trace has; on another machine than its own, CPUs neither come nor go."""
    header, traced = read_trace(file)
    taken = tuple(each for each in traced if topology is None or not isinstance(each.event, events.TopologyChanged))
    duration_s = max((each.at_s for each in taken), default=0.0)
    return Load(file.stem, topology or header.topology, taken, duration_s)


def read_trace(file: Path) -> tuple[Header, Iterator[Traced]]:
    """Whose trace *file* is, and its events one after the other: it may be larger than memory.

    Raises:
        UsageError: it is no trace, also while the events are read; the text names the line.
    """
    lines = _lines(file)
    first = next(lines, "")
    if not first:
        raise UsageError(f"{file}: is empty: it must be a trace, as criproxy record writes it")
    try:
        header = parse_header(first)
    except ValueError as error:
        raise UsageError(f"{file}:1: {error}") from None
    return header, _events(file, lines)


def _lines(file: Path) -> Iterator[str]:
    number = 0
    try:
        with file.open(encoding="utf-8") as source:
            for number, line in enumerate(source, 1):  # noqa: B007 (the error has it)
                yield line
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error, "a trace, as criproxy record writes it", number) from error


def _events(file: Path, lines: Iterator[str]) -> Iterator[Traced]:
    for number, text in enumerate(lines, start=2):
        try:
            yield parse_line(text)
        except ValueError as error:
            raise UsageError(f"{file}:{number}: {error}") from None
