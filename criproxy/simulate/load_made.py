"""Making the events of a load: pods that come at random times, live a while and go. Pure: all chance is the seed's."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from criproxy.errors import UsageError
from criproxy.model.machine.topology import Topology
from criproxy.placement.events import (
    ColdStartEnded,
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerStarted,
    Event,
    PodCreated,
    PodGone,
    PodStopped,
)
from criproxy.placement.options.memory import cold_start_s
from criproxy.placement.records.trace import Traced
from criproxy.simulate.load import PERCENT, Kind, Load, Spec
from criproxy.simulate.load_cards import Cards, Deck, cards_of
from criproxy.simulate.scenario.pods import PodPlan


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
        asks, cards = _requests(plan), kind.cards * sum(not container.init for container in plan.containers)
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

    def _births(self, kind: Kind, sandbox: str) -> Iterator[Event]:
        plan = kind.plan
        pod = plan.pod(sandbox, sandbox)
        yield PodCreated(pod)
        for planned in plan.containers:
            key = _key(sandbox, planned.name)
            cards = [] if planned.init else self._deck.give(sandbox, kind.cards)
            yield ContainerCreating(planned.container(f"r-{key}", pod, self._capacity_bytes, filter(None, cards)))
            yield ContainerCreated(f"r-{key}", key)
            yield ContainerStarted(key)
            if planned.init:
                yield ContainerExited(key)

    def _end_until(self, at_s: float) -> None:
        while self._ends and self._ends[0].at_s <= at_s:
            end = heappop(self._ends)
            if end.cold:
                self.events.append(Traced(end.at_s, ColdStartEnded(end.cold)))
                continue
            self._deck.take_back(end.pod)
            gone = self._of_pod.pop(end.pod)
            self._asked = (self._asked[0] - gone[0], self._asked[1] - gone[1])
            self.events += [Traced(end.at_s, PodStopped(end.pod)), Traced(end.at_s, PodGone(end.pod))]


def _key(sandbox: str, name: str) -> str:
    return f"{sandbox}/{name}"


def _requests(plan: PodPlan) -> tuple[int, int]:
    """Milli-CPU and bytes by which the scheduler counts the pod: init containers end before the others come."""
    regular = [container.amounts for container in plan.containers if not container.init]
    init = [container.amounts for container in plan.containers if container.init]
    cpu_milli = sum(amounts.cpu_request_milli for amounts in regular)
    memory_bytes = sum(amounts.memory_request_bytes for amounts in regular)
    return (
        max([cpu_milli, *(amounts.cpu_request_milli for amounts in init)]),
        max([memory_bytes, *(amounts.memory_request_bytes for amounts in init)]),
    )
