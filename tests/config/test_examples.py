"""The example policy files can be used as they are."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.sim.machines import machine
from tests.conftest import ROOT

NEWCOMER = Container(key="c", pod="s", name="c", qos=QosClass.GUARANTEED, cpu_milli=2000)


@pytest.mark.parametrize(
    ("name", "cpus"), [pytest.param("default", None, id="default"), pytest.param("static", "1,9", id="static")]
)
def test_example(name: str, cpus: str | None) -> None:
    """An example places what its comments promise."""
    policy = load(ROOT / f"policies/{name}.yaml", "any").build_policy()
    grant = policy.place(Node(machine(nodes=2, cores=4, threads=2)), NEWCOMER).grants.get("c")

    assert (format_cpuset(grant.exclusive) if grant else None) == cpus


def test_all_are_tested() -> None:
    """A new example gets a row above."""
    assert sorted(path.stem for path in Path(ROOT / "policies").glob("*.yaml")) == ["default", "static"]
