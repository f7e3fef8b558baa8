"""The vectors about single functions: pools and their limits, sizes; and that each of the others has a test."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.config.document import parse
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.resources import MAX_SHARES_MILLI, milli_to_shares, shares_to_milli
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.alloc.memory.place_memory import with_attached
from criproxy.placement.alloc.pools import build_pools
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.policies.topology_aware import ENTRY
from criproxy.simulate.hosts import machine
from criproxy.simulate.scenario.machine import read_machine
from criproxy.simulate.scenario.place import At
from tests.conftest import ROOT

SHAPES = {
    "1 package, 20 cpus, 1 node": machine(nodes=1, cores=10, threads=2),
    "4 packages, 144 cpus, 1 node each": machine(nodes=4, cores=18, threads=2),
}


@pytest.fixture(scope="module")
def file(shared_dir: Path) -> Path:
    """The file with all vectors."""
    return shared_dir / "scenarios/crirm-vectors.yaml"


@pytest.fixture(scope="module")
def vectors(file: Path) -> dict[str, Any]:
    """The unit vectors as they are written, by id."""
    found = yaml.safe_load(file.read_text())["vectors"]
    return {vector["id"]: vector for vector in found if vector.get("kind") == "unit"}


@pytest.fixture(scope="module")
def server112(file: Path) -> Topology:
    """The server with memory of two kinds and isolated CPUs."""
    document = parse(file.read_text())
    return read_machine(At(document, ("topologies", "server112"), document.data["topologies"]["server112"]))


def nodes_near(topology: Topology, cpus: CpuSet) -> CpuSet:
    """The NUMA nodes of *cpus*, and the memory-only ones that belong to these."""
    return with_attached(topology, topology.nodes_of(cpus))


def test_every_unit_vector_has_a_test(vectors: dict[str, Any]) -> None:
    """One here or beside the function that it is about, but for V29: criproxy has no policy dynamic-pools."""
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    assert not {name for name in vectors.keys() - {"V29"} if not any(name in source for source in sources)}


def test_the_pools_of_a_machine(vectors: dict[str, Any], server112: Topology) -> None:
    """V25: how many there are, how large, and what kinds of memory the first has next to it."""
    cases = [case for case in vectors["V25"]["cases"] if "pools" in case["out"]]
    for case in cases:
        tree = build_pools(SHAPES.get(case["in"]["topology"], server112))
        leaf = next(pool for pool in tree.pools if not tree.children[pool.index])
        assert case["out"] == {
            "pools": len(tree.pools),
            "leaf_cpus": len(leaf.cpus),
            "root_cpus": len(tree.pools[0].cpus),
            "first_memory": sorted(
                {str(node.kind) for node in tree.topology.nodes if node.id in nodes_near(tree.topology, leaf.cpus)}
            ),
        }
    assert len(cases) == 3


@pytest.mark.parametrize("number", [3, 4, 5])
def test_where_a_large_container_is_placed(vectors: dict[str, Any], server112: Topology, number: int) -> None:
    """V25: in a leaf or above, and only where its memory is."""
    case = vectors["V25"]["cases"][number]
    tree = build_pools(server112)
    roomy = [
        pool.name
        for pool in tree.pools
        if server112.memory_bytes(nodes_near(tree.topology, pool.cpus)) >= case["in"]["mem"]
    ]
    policy = ENTRY.build(ENTRY.options.model_validate({"reservedResources": {"cpu": "750m"}, "rules": "crirm"}))
    node = step(Node(server112), PodCreated(Pod(key="s", name="p", qos=QosClass.GUARANTEED)), policy).node
    asking = Container(
        key="r",
        pod="s",
        name="c",
        qos=QosClass.GUARANTEED,
        cpu_milli=case["in"]["full"] * 1000,
        memory_limit_bytes=case["in"]["mem"],
    )

    grant = step(node, ContainerCreating(asking), policy).node.grants["r"]

    assert len(grant.exclusive) == case["in"]["full"]
    assert case["out"]["leaf"] == (not tree.children[tree.by_name[grant.pool].index])
    assert case["out"]["candidates"] == len(roomy)
    assert grant.pool in roomy


def test_milli_cpu_from_shares(vectors: dict[str, Any]) -> None:
    """V30: exact for all that the kubelet sends; 2 shares are up to 2 milli-CPU, and read as 2."""
    for case in vectors["V30"]["cases"]:
        assert milli_to_shares(case["milli"]) == case["shares"]
        assert shares_to_milli(case["shares"]) == (case["exact"] or 2)
        assert case["exact"] in (case["milli"], MAX_SHARES_MILLI)
