"""A load on many nodes alike, each with other pods at other times, played by worker processes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from criproxy.config.load import load as load_policy
from criproxy.model.machine.topology import Topology
from criproxy.process.children.tether import end_with, safe_path
from criproxy.simulate.load import Spec
from criproxy.simulate.load_cards import Cards
from criproxy.simulate.load_made import make
from criproxy.simulate.load_run import MOST_SENTENCES, Outcome, Run
from criproxy.simulate.scores import mean_of


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes of which each has the load of another seed: that of the specification, the next, and so on."""

    name: str
    spec: Spec
    topology: Topology
    policies: Mapping[str, Path]
    """Checked policy files, by what to call them."""
    hostname: str
    cards: Cards = ()
    """Of each node; none takes those of the specification."""

    def play_node(self, index: int) -> "NodeOutcomes":
        """What comes of node *index*; only the first keeps its samples: those of all would be too much."""
        load = make(replace(self.spec, seed=self.spec.seed + index), self.topology, self.name, self.cards)
        outcomes = []
        for name, path in self.policies.items():
            settings = load_policy(path, self.hostname, topology=self.topology)
            outcome = Run.by(settings, name, load).play()
            outcomes.append(replace(outcome, samples=()) if index else outcome)
        return NodeOutcomes(tuple(outcomes), load.turned_away)


@dataclass(frozen=True, slots=True)
class NodeOutcomes:
    """What came of one node."""

    outcomes: tuple[Outcome, ...]
    """One by each policy, in their order."""
    turned_away: int


@contextmanager
def played(fleet: Fleet, nodes: int) -> "Iterator[list[Future[NodeOutcomes]]]":
    """The nodes of *fleet* under way, in their order, in as many processes as there are CPUs to run on."""
    workers = min(nodes, len(os.sched_getaffinity(0)))
    with safe_path():  # for multiprocessing's own process, too, which the executor starts
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=end_with, initargs=(os.getpid(),))
    try:
        with safe_path():
            begun = [pool.submit(partial(fleet.play_node, index)) for index in range(nodes)]
        yield begun
    finally:
        pool.shutdown(cancel_futures=True)


def together(nodes: Sequence[NodeOutcomes]) -> list[Outcome]:
    """An outcome for each policy: counts are sums over the nodes, scores are means, samples those of the first node."""
    return [_merged(outcomes) for outcomes in zip(*(node.outcomes for node in nodes), strict=True)]


def _merged(outcomes: Sequence[Outcome]) -> Outcome:
    sentences = (sentence for outcome in outcomes for sentence in outcome.sentences)
    return replace(
        outcomes[0],
        mean=mean_of(outcome.mean for outcome in outcomes),
        asked=sum(outcome.asked for outcome in outcomes),
        refused=sum(outcome.refused for outcome in outcomes),
        updates=sum(outcome.updates for outcome in outcomes),
        moves=sum(outcome.moves for outcome in outcomes),
        with_cards=sum(outcome.with_cards for outcome in outcomes),
        at_cards=sum(outcome.at_cards for outcome in outcomes),
        sentences=tuple(sentences)[:MOST_SENTENCES],
    )
