"""The vectors that were taken from the tests of CRI-RM and nri-plugins: which of them hold."""

from pathlib import Path

import pytest

from criproxy.sim.scenario.runner import run
from criproxy.sim.scenario.vectors import Vector, load

VECTORS = "scenarios/crirm-vectors.yaml"

KNOWN_FAILURES: dict[str, str] = {}
"""Case and rules → what is missing. Whoever adds it takes the line out: one that passes while it is here fails."""


@pytest.fixture(scope="module")
def vectors(shared_dir: Path) -> list[Vector]:
    """All end-to-end vectors."""
    return [vector for vector in load(shared_dir / VECTORS) if not vector.unit]


def test_every_vector_holds_that_is_not_known_to_fail(vectors: list[Vector]) -> None:
    """Vectors pass by each of their rules, but for those in the table, which fail."""
    results = {f"{vector.id} {rules}": run(vector, rules) for vector in vectors for rules in vector.rules}
    failures = {name: f"line {result.line}: {result.failure}" for name, result in results.items() if result.failure}

    assert failures.keys() == KNOWN_FAILURES.keys(), {
        name: failures.get(name, "passes now: take it out of KNOWN_FAILURES")
        for name in failures.keys() ^ KNOWN_FAILURES.keys()
    }
