"""The vectors that were taken from the tests of CRI-RM and nri-plugins: which of them hold."""

from pathlib import Path

from criproxy.simulate.scenario.runner import run, runs
from criproxy.simulate.scenario.vectors import Vector, load
from tests.conftest import ROOT

VECTORS = "scenarios/crirm-vectors.yaml"

KNOWN_FAILURES: dict[str, str] = {}
"""Case and rules → what is missing. Whoever adds it takes the line out: one that passes while it is here fails."""


PEERS = ROOT / "tests/scenarios/peers.yaml"
"""Further cases after the tests of both projects, which all hold."""


def failures(vectors: list[Vector]) -> dict[str, str]:
    """Case and rules → the first thing that is not as expected, of those where there is one."""
    results = {f"{vector.id} {rules}": run(vector, rules) for vector, rules in runs(vectors) if rules}
    return {name: f"line {result.line}: {result.failure}" for name, result in results.items() if result.failure}


def test_every_vector_holds_that_is_not_known_to_fail(shared_dir: Path) -> None:
    """Vectors pass by each of their rules, but for those in the table, which fail."""
    failed = failures(load(shared_dir / VECTORS))

    assert failed.keys() == KNOWN_FAILURES.keys(), {
        name: failed.get(name, "passes now: take it out of KNOWN_FAILURES")
        for name in failed.keys() ^ KNOWN_FAILURES.keys()
    }


def test_further_cases_of_both_projects_hold() -> None:
    """On machines with dies, level 3 caches and several kinds of memory, too."""
    assert not failures(load(PEERS))
