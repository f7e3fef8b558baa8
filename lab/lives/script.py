"""What happens in one life, drawn before it begins: steps of one event, or of several that happen at once."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any

from lab.lives import configurations, pods
from lab.lives.configurations import Files
from lab.lives.machine import NPU, NUMBERS, NVIDIA
from lab.lives.node import CRIPROXY, KUBELET, PARTS, PLUGIN, RUNTIME

STEPS = 14
MOST_PODS = 7
DELAYS_S = (0.0, 0.0, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4)
"""How long after what happens at the same time a pod may come."""
KILLED = 0.3
"""How often a kubelet that ends leaves its socket behind."""
MENDS = 0.6
"""How often something is mended, rather than broken, if anything is broken."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens."""

    kind: str
    """What `life` calls it."""
    subject: str
    """What it happens to: one step has no two events of one subject."""
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.kind, *map(str, self.values)])


Step = tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A whole life."""

    cards: tuple[tuple[str, int], ...]
    """Those of the beginning."""
    has_mig: bool
    files: Files
    steps: tuple[Step, ...]
    ends: tuple[str, ...]
    """In which order the parts end."""


def draw(seed: int, life: int, steps: int = STEPS) -> Script:
    """The life of that number."""
    random = Random(f"{seed}/{life}")
    cards = tuple((kind, number) for kind, numbers in NUMBERS.items() for number in numbers if random.random() < 0.7)
    has_mig = random.random() < 0.3
    shares_mig = has_mig and Random(f"{seed}/{life}/sharing").random() < 0.5
    files = configurations.draw(random, shares_mig=shares_mig)
    drawing = _Drawing(random, shares_mig, set(cards), files)
    drawn = tuple(drawing.step() for _ in range(steps))
    return Script(cards, has_mig, files, drawn, tuple(random.sample(PARTS, len(PARTS))))


@dataclass(slots=True)
class _Drawing:
    random: Random
    shares_mig: bool
    cards: set[tuple[str, int]]
    files: Files
    up: set[str] = field(default_factory=lambda: set(PARTS))
    pods: list[str] = field(default_factory=list)
    made: int = 0
    nodes_lost: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    broken: bool = False

    def step(self) -> Step:
        """One event, or two or three that do not contradict each other."""
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        events = list[Event]()
        while len(events) < count:
            taken = {event.subject for event in events}
            event = self._event(frozenset(taken))
            if event is None:
                break
            events.append(event)
        if any(event.subject in (KUBELET, PLUGIN) and event.kind != "stop" for event in events):
            events += filter(None, (self._pod() for _ in range(self.random.randrange(3))))  # it may find all in use
        return tuple(events)

    def _event(self, taken: frozenset[str]) -> Event | None:
        choices: list[tuple[float, Callable[[], Event | None]]] = [
            (5, self._pod),
            (3, self._end),
            (2, self._crash),
            # Parts that are away come back soon.
            *((_WEIGHTS[p] * (1 if p in self.up else 4), lambda p=p: self._part(p)) for p in PARTS),
            (3, self._card),
            (1.5, self._node),
            (1.5, self._health),
            (1, self._xid),
            (3 if PLUGIN in self.up else 9, self._files),
        ]
        weights, kinds = zip(*choices, strict=True)
        for _ in range(20):
            before = {each.name: copy(getattr(self, each.name)) for each in fields(self) if each.name != "random"}
            event: Event | None = self.random.choices(kinds, weights)[0]()
            if event is not None and not _clashes(event.subject, taken):
                return event
            for name, value in before.items():
                setattr(self, name, value)
        return None

    # ---------------------------------------------------------------- events

    def _pod(self) -> Event | None:
        if len(self.pods) >= MOST_PODS:
            return None
        self.made += 1
        name = f"pod-{self.made}"
        self.pods.append(name)
        after_s = self.random.choice(DELAYS_S)
        return Event("pod", name, (pods.draw(self.random, name, self.files.usual), after_s))

    def _end(self) -> Event | None:
        if not self.pods:
            return None
        name = self.random.choice(self.pods)
        self.pods.remove(name)
        return Event("end", name, (name,))

    def _crash(self) -> Event | None:
        return Event("crash", name := self.random.choice(self.pods), (name,)) if self.pods else None

    def _part(self, part: str) -> Event:
        if part not in self.up:
            self.up.add(part)
            return Event("start", part, (part,))
        killed = part == KUBELET and self.random.random() < KILLED
        if self.random.random() < 0.6:
            return Event("restart", part, (part, killed))
        self.up.remove(part)
        return Event("stop", part, (part, killed))

    def _card(self) -> Event:
        away = [(kind, number) for kind in NUMBERS for number in NUMBERS[kind] if (kind, number) not in self.cards]
        among = away if away and self.random.random() < MENDS else sorted(self.cards)
        kind, number = self.random.choice(among or away)
        there = (kind, number) in self.cards
        (self.cards.discard if there else self.cards.add)((kind, number))
        if kind == NVIDIA:
            self.nodes_lost.discard(number)
        return Event("remove" if there else "add", f"card {kind} {number}", (kind, number))

    def _node(self) -> Event | None:
        lost = sorted(self.nodes_lost)
        number = self.random.choice(lost if lost and self.random.random() < MENDS else NUMBERS[NVIDIA])
        if (NVIDIA, number) not in self.cards:
            return None
        self.nodes_lost ^= {number}
        return Event("node lost" if number in self.nodes_lost else "node back", f"card {NVIDIA} {number}", (number,))

    def _health(self) -> Event:
        if self.broken or self.random.random() < 0.15:
            self.broken = not self.broken
            return Event("command breaks" if self.broken else "command works", "health", ())
        bad = sorted(self.bad)
        number = self.random.choice(bad if bad and self.random.random() < MENDS else NUMBERS[NPU])
        self.bad ^= {number}
        return Event("bad" if number in self.bad else "good", "health", (number,))

    def _xid(self) -> Event | None:
        numbers = [number for kind, number in sorted(self.cards) if kind == NVIDIA]
        return Event("xid", "xid", (self.random.choice(numbers),)) if numbers else None

    def _files(self) -> Event:
        if self.random.random() < 0.2:
            return Event("spoil", "files", (self.random.randrange(2),))
        self.files = configurations.draw(self.random, shares_mig=self.shares_mig)
        return Event("files", "files", (self.files,))


_WEIGHTS = {KUBELET: 2, PLUGIN: 2.5, CRIPROXY: 1.2, RUNTIME: 1.2}
_ALONE = {
    "files": ("card ", PLUGIN),
    "xid": ("card ", PLUGIN, "files"),
    PLUGIN: ("files", "xid", "card ", "health"),
    "health": ("files", f"card {NPU} "),
}
"""What must not happen at the same time, since it would not be known what is right."""


def _clashes(subject: str, taken: frozenset[str]) -> bool:
    return subject in taken or any(
        other.startswith(_ALONE.get(subject, ())) or subject.startswith(_ALONE.get(other, ())) for other in taken
    )


def told(script: Script, steps: int) -> Iterator[str]:
    """The first *steps* in words."""
    cards = ", ".join(f"{kind} {number}" for kind, number in script.cards)
    yield f"a machine with {cards or 'no card'}{' and MIG' if script.has_mig else ''}; {script.files}"
    for number, step in enumerate(script.steps[:steps], 1):
        yield f"{number}: {'; '.join(map(str, step))}"
