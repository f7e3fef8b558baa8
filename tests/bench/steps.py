"""What a decision costs: CPU time of `engine.step` on 384 CPUs and 8 NUMA nodes, by policy and number of containers.

``python -m tests.bench.steps [--policy NAME] [--json FILE]``; exit status 1 if one takes too long.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

from criproxy.engine.events import ContainerCreated, ContainerCreating, ContainerGone, ContainerStarted, Event
from criproxy.engine.step import step
from criproxy.errors import NotEnough
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.policy import BUILTIN
from criproxy.policy.api import Policy
from criproxy.sim.machines import GIB, machine

COUNTS = (16, 100, 500)
MEDIAN_BAR_MS, P99_BAR_MS = 2.0, 5.0
SIZES = {
    QosClass.GUARANTEED: (1000, 1000, 1500, 2000, 3000),
    QosClass.BURSTABLE: (100, 250, 500),
    QosClass.BEST_EFFORT: (0,),
}


@dataclass
class Churn:
    """A node on which containers come and go, and how long each decision took."""

    policy: Policy
    node: Node
    rng: random.Random
    alive: list[str] = field(default_factory=list)
    created: int = 0
    refused: int = 0
    times_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By the name of the event."""

    def step(self, event: Event) -> bool:
        """Whether the event was accepted."""
        start_ns = time.process_time_ns()
        try:
            self.node = step(self.node, event, self.policy).node
        except NotEnough:
            self.refused += 1
            return False
        finally:
            self.times_ms[type(event).__name__].append((time.process_time_ns() - start_ns) / 1e6)
        return True

    def arrive(self) -> None:
        """One container, until it runs."""
        self.created += 1
        name = f"c{self.created}"
        qos = self.rng.choices(list(SIZES), [3, 5, 2])[0]
        container = Container(
            key=f"r-{name}",
            pod=f"p-{name}",
            name="main",
            namespace="shop",
            qos=qos,
            cpu_milli=self.rng.choice(SIZES[qos]),
            memory_limit_bytes=GIB // 4,
        )
        if self.step(ContainerCreating(container)):
            self.step(ContainerCreated(container.key, name))
            self.step(ContainerStarted(name))
            self.alive.append(name)

    def leave(self) -> None:
        """One container, any of them."""
        self.step(ContainerGone(self.alive.pop(self.rng.randrange(len(self.alive)))))


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of CPU time of one kind of event."""

    policy: str
    containers: int
    event: str
    count: int
    median_ms: float
    p99_ms: float

    @property
    def missed(self) -> bool:
        """Whether it took longer than it may."""
        return self.median_ms > MEDIAN_BAR_MS or self.p99_ms > P99_BAR_MS


def rows(policy: str, containers: int, rounds: int = 400) -> Iterator[Row]:
    """A row for each kind of event, while one container after the other is replaced."""
    entry = BUILTIN[policy]
    built = entry.build(entry.options.model_validate({"reservedCpus": "0,192"}))
    churn = Churn(built, Node(machine(nodes=8, cores=24, threads=2, packages=2)), random.Random(1))
    while len(churn.alive) < containers:
        churn.arrive()
    churn.times_ms.clear()
    for _ in range(rounds):
        churn.leave()
        churn.arrive()
    for event, times_ms in churn.times_ms.items():
        p99_ms = sorted(times_ms)[len(times_ms) * 99 // 100]
        yield Row(policy, containers, event, len(times_ms), round(statistics.median(times_ms), 3), round(p99_ms, 3))


def main() -> int:
    """Print a row each, and say whether the bars hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", choices=list(BUILTIN), help="only this one; repeatable")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    found = []
    for policy, containers in product(args.policy or BUILTIN, COUNTS):
        for row in rows(policy, containers):
            found.append(row)
            print("  ".join(f"{name}={value}" for name, value in asdict(row).items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n")
    return int(any(row.missed for row in found))


if __name__ == "__main__":
    sys.exit(main())
