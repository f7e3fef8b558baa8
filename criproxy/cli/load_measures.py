"""What ``simulate --load`` tells of each policy: the numbers, how people read them, and which of two is better."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from criproxy.sim.load import Load
from criproxy.sim.load_run import Outcome


@dataclass(frozen=True, slots=True)
class Measure:
    """One number about an outcome."""

    key: str
    """In JSON."""
    title: str
    value: Callable[[Outcome], float]
    shown: Callable[[float], str]
    best: Callable[[Sequence[float]], float] | None
    """Which of several is best; None where none is."""
    meaning: str


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _one(value: float) -> str:
    return f"{value:.1f}"


MEASURES = (
    Measure(
        *("refused", "refused", lambda outcome: outcome.refused, _whole, min),
        "Containers and resizes for which the policy never had a place.",
    ),
    Measure(
        *("distance", "distance to memory", lambda outcome: outcome.mean.distance, _one, min),
        "From the CPUs of a container to its memory as the kernel measures it: 10 is the same NUMA node. Mean.",
    ),
    Measure(
        *("cpu_on_one_node", "CPUs on one NUMA node", lambda outcome: outcome.mean.cpu_on_one_node, _share, max),
        "Share of a container's CPUs that are on the NUMA node where it has most of them. Mean.",
    ),
    Measure(
        *("memory_on_one_node", "memory on one node", lambda outcome: outcome.mean.memory_on_one_node, _share, max),
        "Share of the memory that a container may use which is on a single NUMA node. Mean.",
    ),
    Measure(
        *("fragmentation", "fragmentation", lambda outcome: outcome.mean.fragmentation, _share, min),
        "How far the CPU that nobody asked for is from being on one NUMA node, where the next large container fits. "
        "Mean.",
    ),
    Measure(
        *("crowded", "crowded", lambda outcome: outcome.mean.crowded, _share, min),
        "Share of the CPU asked for that is more than its CPUs have, each container spread evenly over its own. Mean.",
    ),
    Measure(
        *("owned_cpus", "CPUs owned", lambda outcome: outcome.mean.owned_cpus, _one, None),
        "CPUs that one container has alone. Mean. Good for latency, and nobody else can use them while they idle.",
    ),
    Measure(
        *("updates", "updates sent", lambda outcome: outcome.updates, _whole, min),
        "Calls to the runtime that changed running containers, since others came or went.",
    ),
    Measure(
        *("moves", "moves", lambda outcome: outcome.moves, _whole, min),
        "Those of them after which a container is on other NUMA nodes, with its CPUs or its memory.",
    ),
)


def best(measure: Measure, outcomes: Sequence[Outcome]) -> set[int]:
    """Which outcomes, by place, show the best number; none where they all show the same."""
    if measure.best is None or len(outcomes) < 2:
        return set()
    values = [measure.value(outcome) for outcome in outcomes]
    top = measure.shown(measure.best(values))
    found = {place for place, value in enumerate(values) if measure.shown(value) == top}
    return found if len(found) < len(outcomes) else set()


def recommended(outcomes: Sequence[Outcome]) -> Outcome:
    """Which to take: by refusals, crowding, distance to memory, fragmentation and moves, in this order."""

    def order(outcome: Outcome) -> tuple[float, ...]:
        mean = outcome.mean
        return (
            outcome.refused,
            round(mean.crowded, 1),
            round(mean.distance, 1),
            round(mean.fragmentation, 3),
            outcome.moves,
        )

    return min(outcomes, key=order)


def as_json(load: Load, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything for programs; times in seconds, shares from 0 to 1."""
    return {
        "load": load.name,
        "duration_s": load.duration_s,
        "events": len(load.events),
        "nodes": load.nodes,
        "turned_away_pods": load.turned_away,
        "machine": {"cpus": len(load.topology.cpus), "nodes": len(load.topology.nodes)},
        "policies": [_policy(outcome) for outcome in outcomes],
    }


def _policy(outcome: Outcome) -> dict[str, Any]:
    numbers = {measure.key: round(measure.value(outcome), 4) for measure in MEASURES}
    return {
        "policy": outcome.name,
        "containers": outcome.asked,
        "mean_containers": round(outcome.mean.containers, 4),
        **numbers,
        "refusals": list(outcome.sentences),
    }
