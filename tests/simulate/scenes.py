"""Scenario files for tests, written as short as they can be."""

from pathlib import Path

from criproxy.simulate.scenario.runner import Result, run
from criproxy.simulate.scenario.vectors import Vector, read

FILE = Path("scenes.yaml")
HEAD = """
topologies:
  two: {threads: consecutive, nodes: {0: {cpus: 0-3, pkg: 0, mem: 2G}, 1: {cpus: 4-7, pkg: 1, mem: 2G}}}
vectors:
"""
CASE = """
  - id: A
    topology: two
    policy: static
    config: {reserved: "cpuset:0"}
    steps:
"""


def vector(steps: str, case: str = CASE) -> Vector:
    """The one case of a file with these *steps*, a line for each, on two NUMA nodes of two cores."""
    contents = read(f"{HEAD}{case}{_indented(steps)}", FILE)
    assert not contents.all_mistakes, contents.all_mistakes
    return contents.vectors[0]


def mistakes(steps: str, case: str = CASE) -> list[str]:
    """What is wrong with a file with these *steps*, as LINE: SENTENCE; the first of the steps is in line 11."""
    return [f"{wrong.line}: {wrong.text}" for wrong in read(f"{HEAD}{case}{_indented(steps)}", FILE).all_mistakes]


def outcome(steps: str, case: str = CASE, rules: str = "nri") -> Result:
    """How a run of the case with these *steps* goes."""
    return run(vector(steps, case), rules)


def _indented(steps: str) -> str:
    return "".join(f"      {line}\n" for line in steps.strip().splitlines())
