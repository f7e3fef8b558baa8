"""Scenarios of the policies: each case by each of the rules that it names."""

from pathlib import Path

import pytest

from criproxy.simulate.scenario.runner import run
from criproxy.simulate.scenario.vectors import Vector, load
from tests.conftest import ROOT

FILES = [*sorted((Path(__file__).parent / "scenarios").glob("*.yaml")), ROOT / "docs/examples/topology-aware.yaml"]
CASES = [(vector, rules) for file in FILES for vector in load(file) for rules in vector.rules]


@pytest.mark.parametrize(("vector", "rules"), CASES, ids=[f"{vector.id}-{rules}" for vector, rules in CASES])
def test_scenario(vector: Vector, rules: str) -> None:
    """Everybody is where the file expects them."""
    result = run(vector, rules)

    assert not result.failure, f"line {result.line}: {result.failure}"
