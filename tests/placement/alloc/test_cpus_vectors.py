"""The CPU allocator gives what nri-plugins' gives, on its machine of 2 packages with 40 CPUs each (V28)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Core, NumaNode, Package, Topology
from criproxy.placement.alloc.cpus import Taste, take_cpus
from criproxy.simulate.hosts import GIB

PACKAGES = parse_cpuset("0-19,40-59"), parse_cpuset("20-39,60-79")
CLUSTERS = [
    *("0-3", "4-7", "8-11", "12-15", "16-19", "40-43", "44-47", "48-51", "52-55", "56-59"),
    *("20,22,24,26", "21,23,25,27", "28-31", "32-35", "36-39", "60-63", "64-67", "68-71", "72-75", "76-79"),
]
"""Those of nri-plugins' test; the vector gives only those of package 0."""
EFFICIENT = parse_cpuset("16-19,36-39,56-59,76-79")
"""Where the same test has cores of two kinds."""
UNEVEN = [*CLUSTERS[:14], "36-37", "38-39", *CLUSTERS[15:]]
FEWER = EFFICIENT - parse_cpuset("38-39")


def topology(clusters: list[str]) -> Topology:
    """The machine: threads n and n+40 are a core, which these clusters ignore."""
    online = parse_cpuset("0-79")
    return Topology(
        cpus=online,
        mems=frozenset({0, 1}),
        nodes=tuple(NumaNode(index, cpus, GIB) for index, cpus in enumerate(PACKAGES)),
        cores=tuple(Core(cpu, frozenset({cpu, cpu + 40})) for cpu in range(40)),
        packages=tuple(Package(index, cpus) for index, cpus in enumerate(PACKAGES)),
        online_cpus=online,
        l2_groups=tuple(parse_cpuset(cpus) for cpus in clusters),
    )


def _named(cpus: str) -> CpuSet:
    names = {"pkg0": PACKAGES[0], "pkg1": PACKAGES[1]}
    return frozenset[int]().union(*(names[name] if name in names else parse_cpuset(name) for name in cpus.split("+")))


def test_vector_28(shared_dir: Path) -> None:
    """Each of its cases, exactly."""
    document = yaml.safe_load((shared_dir / "scenarios/crirm-vectors.yaml").read_text())
    (vector,) = (vector for vector in document["vectors"] if vector["id"] == "V28")
    for case in vector["cases"]:
        assert _answer(case, vector["priorities"]) == _written(case["out"]), case


def _written(cpus: str) -> str:
    return cpus if cpus == "error" else format_cpuset(parse_cpuset(cpus))


def _answer(case: dict[str, Any], priorities: dict[str, str]) -> str:
    first = parse_cpuset(priorities[case["prefer"]]) if "prefer" in case else frozenset[int]()
    machine = topology(CLUSTERS if "clusters" in case else [])
    try:
        return format_cpuset(take_cpus(machine, _named(case["from"]), case["n"], Taste(first)))
    except NotEnough:
        return "error"


@pytest.mark.parametrize(
    ("clusters", "first", "count", "expected"),
    [
        pytest.param(CLUSTERS, parse_cpuset("0-79") - EFFICIENT, 4, "0-3", id="a-cluster"),
        pytest.param(CLUSTERS, parse_cpuset("0-79") - EFFICIENT, 32, "0-15,40-55", id="all-of-a-package"),
        pytest.param(CLUSTERS, parse_cpuset("0-79") - EFFICIENT, 36, "0-15,20,22,24,26,40-55", id="and-a-cluster"),
        pytest.param(CLUSTERS, parse_cpuset("0-79") - EFFICIENT, 40, "0-15,20-27,40-55", id="and-two-clusters"),
        pytest.param(CLUSTERS, EFFICIENT, 4, "16-19", id="low-a-cluster"),
        pytest.param(CLUSTERS, EFFICIENT, 8, "16-19,56-59", id="low-two-clusters"),
        pytest.param(UNEVEN, FEWER, 2, "36-37", id="low-the-tighter-cluster"),
        pytest.param(UNEVEN, FEWER, 6, "36-37,76-79", id="low-the-tighter-package"),
        pytest.param(UNEVEN, FEWER, 8, "16-19,56-59", id="low-one-package"),
    ],
)
def test_kinds_of_cores(clusters: list[str], first: CpuSet, count: int, expected: str) -> None:
    """Only cores of the liked kind where there are enough: the tightest package, then the tightest clusters."""
    machine = topology(clusters)

    assert format_cpuset(take_cpus(machine, machine.cpus, count, Taste(first))) == expected
