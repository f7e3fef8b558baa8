"""A load on a node by one policy: what came of it, in counts and mean scores."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from criproxy.config.settings import Settings
from criproxy.errors import CriproxyError, Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerResized, Event, TopologyChanged
from criproxy.placement.invariants import violations
from criproxy.placement.policies.api import Policy
from criproxy.placement.records.trace import Traced
from criproxy.simulate.load import Load
from criproxy.simulate.scenario.world import raised
from criproxy.simulate.scores import Scorer, Scores, mean_of

SAMPLES = 120
"""How many moments of a load are looked at, at equal distances in time."""
MOST_SENTENCES = 5


class PolicyAtFault(CriproxyError):
    """A policy that raised something else than a refusal, or broke a rule; the text says which, when and at what."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a load by one policy."""

    name: str
    mean: Scores
    asked: int
    """Containers that came."""
    refused: int
    """Those of them that never got a place, and resizes that were refused; each once however often it is tried."""
    updates: int
    """Sent to the runtime for containers that were there already."""
    moves: int
    """Those of them after which a container is on other NUMA nodes, with its CPUs or its memory."""
    sentences: tuple[str, ...]
    """Of the first few refusals."""
    with_cards: int = 0
    """Containers with cards that got a place."""
    at_cards: int = 0
    """Those of them that got CPUs next to their cards only, and memory there if they are kept to some."""

    @property
    def at_cards_share(self) -> float:
        """Of the containers with cards that got a place, from 0 to 1; 1 where there are none."""
        return self.at_cards / self.with_cards if self.with_cards else 1.0

    @property
    def refused_share(self) -> float:
        """Of the containers that came, from 0 to 1."""
        return self.refused / self.asked if self.asked else 0.0


@dataclass(slots=True)
class Run:
    """A node under a load."""

    name: str
    policy: Policy
    load: Load
    checked: bool = False
    """Whether what the policy answers is checked after every event: it is not ours."""
    reserved: CpuSet = frozenset()
    """The CPUs that nobody may own, for that check."""
    _node: Node = field(init=False)
    _scorer: Scorer = field(init=False)
    _samples: list[Scores] = field(default_factory=list)
    _asked: set[tuple[str, str]] = field(default_factory=set)
    _refused: dict[tuple[str, ...], str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    """The counts of `Outcome`, by name."""

    def __post_init__(self) -> None:
        self._node = Node(self.load.topology)
        self._scorer = Scorer(self.load.topology)

    @classmethod
    def by(cls, settings: Settings, name: str, load: Load) -> "Run":
        """A node with the policy of a policy file; raises ConfigError if it cannot be made."""
        reserved = settings.options.reserved(load.topology)
        return cls(name, settings.build_policy(), load, settings.external, reserved)

    def play(self, events: Iterable[Traced] | None = None) -> Outcome:
        """Take the load's events one after the other; *events* are the same ones, such as those with a progress bar.

        Raises:
            PolicyAtFault: the policy raised something else than a refusal, or broke a rule.
        """
        every_s = self.load.duration_s / SAMPLES
        for traced in self.load.events if events is None else events:
            while len(self._samples) < SAMPLES and traced.at_s > (len(self._samples) + 1) * every_s:
                self._samples.append(self._scorer.score(self._node))
            self._take(traced)
        while len(self._samples) < SAMPLES:
            self._samples.append(self._scorer.score(self._node))
        return self._outcome()

    def _take(self, traced: Traced) -> None:
        event = traced.event
        identity = self._identity(event)
        if isinstance(event, ContainerCreating):
            self._asked.add((event.container.pod, event.container.name))
        before = self._node
        try:
            decision = step(before, event, self.policy)
        except Refused as error:
            self._refused.setdefault(identity, str(error))
            return
        except Exception as error:
            raise self._fault(traced, raised(error)) from error
        if self.checked and (broken := violations(decision.node, self.reserved)):
            raise self._fault(traced, f"its placement is broken: {broken[0]}")
        self._refused.pop(identity, None)
        self._node = decision.node
        self._count_updates(before, decision)
        if isinstance(event, ContainerCreating) and event.container.hints:
            self._count_cards(event.container)
        if isinstance(event, TopologyChanged):
            self._scorer = Scorer(event.topology)

    def _fault(self, traced: Traced, what: str) -> PolicyAtFault:
        when = f"{traced.at_s:.1f} s after the beginning, at {_about(traced.event, self._node)}"
        return PolicyAtFault(f"the policy {self.name!r} is at fault {when}: {what}")

    def _identity(self, event: Event) -> tuple[str, ...]:
        """By which repeated tries of the same are known; empty where there is nothing to refuse."""
        if isinstance(event, ContainerCreating):
            return event.container.pod, event.container.name
        return (event.key,) if isinstance(event, ContainerResized) else ()

    def _count_cards(self, newcomer: Container) -> None:
        near, (cpus, mems) = frozenset[int]().union(*newcomer.hints), self._scorer.place(self._node, newcomer)
        topology = self._node.topology
        self._counts["with_cards"] += 1
        self._counts["at_cards"] += topology.nodes_of(cpus) <= near and (mems <= near or mems == topology.mems)

    def _count_updates(self, before: Node, decision: Decision) -> None:
        self._counts["updates"] += len(decision.updates)
        for update in decision.updates:
            old = before.grants.get(update.key)
            self._counts["moves"] += old is not None and _moved(before.topology, old, update.grant)

    def _outcome(self) -> Outcome:
        sentences = tuple(self._refused.values())[:MOST_SENTENCES]
        asked, refused, mean = len(self._asked), len(self._refused), mean_of(self._samples)
        counts = {name: self._counts[name] for name in ("updates", "moves", "with_cards", "at_cards")}
        return Outcome(self.name, mean, asked=asked, refused=refused, sentences=sentences, **counts)


def _moved(topology: Topology, old: Grant, new: Grant) -> bool:
    everywhere = topology.mems
    if (old.mems or everywhere) != (new.mems or everywhere):
        return True
    return old.cpus != new.cpus and topology.nodes_of(old.cpus) != topology.nodes_of(new.cpus)


def _about(event: Event, node: Node) -> str:
    """An event and whom it is about, by the name that people know: ``ContainerCreating of default/web/main``."""
    kind = type(event).__name__
    if isinstance(event, ContainerCreating):
        return f"{kind} of {event.container.title}"
    key = next((getattr(event, field.name) for field in fields(event) if field.name in ("key", "reservation")), "")
    known = node.containers.get(key) or node.pods.get(key)
    return f"{kind} of {known.title if known else key}" if key else kind
