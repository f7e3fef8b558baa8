"""NodeResourceTopology: what the scheduler plugin reads is exact, and adds up."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from criproxy.agent.objects.topology import topology_of
from criproxy.errors import Refused
from criproxy.model.resources import Interval
from criproxy.model.text.amounts import parse_bytes, parse_milli
from criproxy.model.workload import Container, QosClass
from criproxy.simulate.hosts import GIB, shaped
from tests.agent.views import DB, WEB, gpus, planned, view_of
from tests.placement.built import policy_of

GOLDEN = """
attributes:
- {name: topologyManagerPolicy, value: single-numa-node}
- {name: topologyManagerScope, value: pod}
- {name: nodeTopologyPodsFingerprint, value: pfp0v001c659ac4f8eb8b270}
- {name: nodeTopologyPodsFingerprintMethod, value: all}
zones:
- name: node-0
  type: Node
  parent: socket-0
  costs:
  - {name: node-0, value: 10}
  - {name: node-1, value: 12}
  - {name: node-2, value: 21}
  - {name: node-3, value: 21}
  resources:
  - {name: cpu, capacity: '24', allocatable: '22', available: '20'}
  - {name: memory, capacity: '137438953472', allocatable: '135291469824', available: '126701535232'}
  - {name: nvidia.com/gpu, capacity: '2', allocatable: '2', available: '2'}
- name: node-1
  type: Node
  parent: socket-0
  costs:
  - {name: node-0, value: 12}
  - {name: node-1, value: 10}
  - {name: node-2, value: 21}
  - {name: node-3, value: 21}
  resources:
  - {name: cpu, capacity: '24', allocatable: '24', available: '24'}
  - {name: memory, capacity: '137438953472', allocatable: '137438953472', available: '137438953472'}
- name: node-2
  type: Node
  parent: socket-1
  costs:
  - {name: node-0, value: 21}
  - {name: node-1, value: 21}
  - {name: node-2, value: 10}
  - {name: node-3, value: 12}
  resources:
  - {name: cpu, capacity: '24', allocatable: '24', available: '24'}
  - {name: memory, capacity: '137438953472', allocatable: '137438953472', available: '137438953472'}
  - {name: nvidia.com/gpu, capacity: '2', allocatable: '2', available: '2'}
- name: node-3
  type: Node
  parent: socket-1
  costs:
  - {name: node-0, value: 21}
  - {name: node-1, value: 21}
  - {name: node-2, value: 12}
  - {name: node-3, value: 10}
  resources:
  - {name: cpu, capacity: '24', allocatable: '24', available: '24'}
  - {name: memory, capacity: '137438953472', allocatable: '137438953472', available: '137438953472'}
"""
"""2 sockets, 4 NUMA nodes of 24 CPUs and 128 GiB, 2 GPUs on the nodes 0 and 2, CPUs 0-1 and 2 GiB reserved; db-0 has 2
exclusive CPUs and 8 GiB on node 0, kube-proxy-x nothing."""


def golden_view() -> dict[str, Any]:
    """Return the daemon's answer about that node."""
    distances = [(10, 12, 21, 21), (12, 10, 21, 21), (21, 21, 10, 12), (21, 21, 12, 10)]
    nodes = [
        {
            "id": number,
            "socket": number // 2,
            "kind": "dram",
            "distances": {str(other): distance for other, distance in enumerate(distances[number])},
            "cpus": {
                "count": 24,
                "allocatable_milli": 22000 if number == 0 else 24000,
                "available_milli": 20000 if number == 0 else 24000,
            },
            "memory": {
                "capacity_bytes": 128 * GIB,
                "allocatable_bytes": 126 * GIB if number == 0 else 128 * GIB,
                "available_bytes": 118 * GIB if number == 0 else 128 * GIB,
            },
            "hugepages": {},
        }
        for number in range(4)
    ]
    gpu = {"resource": "nvidia.com/gpu", "profile": "", "total": 2, "allocated": 0, "free": 2}
    pods = [("kube-system", "kube-proxy-x", False), ("default", "db-0", False), ("default", "gone", True)]
    return {
        "known": True,
        "numa_nodes": nodes,
        "devices": [gpu | {"numa_node": number} for number in (0, 2)],
        "pods": [{"namespace": space, "name": name, "uid": name, "stopped": gone} for space, name, gone in pods],
        "pools": [],
    }


def made(view: dict[str, Any]) -> dict[str, Any]:
    """Return the object of a node about which enough is known."""
    found = topology_of(view, "single-numa-node", "pod")
    assert found is not None
    return found


def node_zones(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the zones that the scheduler reads."""
    return [each for each in obj["zones"] if each["type"] == "Node"]


def amounts(zone: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Return capacity, allocatable and available of each resource of a zone."""
    return {
        each["name"]: tuple(  # type: ignore[misc]
            (parse_milli if each["name"] == "cpu" else parse_bytes)(each[key])
            for key in ("capacity", "allocatable", "available")
        )
        for each in zone.get("resources", ())
    }


def test_the_example_of_the_reference() -> None:
    """Each field that the scheduler reads, and no more than 2.1 kB."""
    obj = made(golden_view())

    assert {**obj, "zones": node_zones(obj)} == yaml.safe_load(GOLDEN)
    assert len(json.dumps({**obj, "zones": node_zones(obj)}, separators=(",", ":"))) < 2100


def test_a_node_as_the_daemon_sees_it() -> None:
    """Exclusive CPUs and requests of sharing containers are no longer available where they are placed."""
    obj = made(view_of(devices=gpus(free=False)))

    total = [amounts(zone) for zone in node_zones(obj)]
    assert sum(each["cpu"][0] for each in total) == 32_000
    assert sum(each["cpu"][1] - each["cpu"][2] for each in total) == 2000 + 1500
    assert sum(each["memory"][1] - each["memory"][2] for each in total) == 9 * GIB
    assert total[2]["nvidia.com/vgpu-g4"] == (4, 4, 3)
    assert total[0]["nvidia.com/gpu"] == (1, 1, 1)


def test_zones_for_people() -> None:
    """Sockets, which are the parents of NUMA nodes, and the pools in which containers are."""
    obj = made(view_of())
    others = {each["name"]: each for each in obj["zones"] if each["type"] != "Node"}

    assert {each["parent"] for each in node_zones(obj)} == {"socket-0", "socket-1"} <= others.keys()
    pools = [each for each in others.values() if each["type"] == "Pool"]
    assert pools
    assert all("cpuset" in {pair["name"] for pair in each["attributes"]} for each in pools)
    assert not any("resources" in each for each in others.values())  # people read them, and nothing is counted twice


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"allocatable_milli": 22_500, "available_milli": 20_250}, ("22500m", "20250m")),
        ({"allocatable_milli": 30_000, "available_milli": 20_000}, ("24", "20")),
        ({"allocatable_milli": 22_000, "available_milli": 23_000}, ("22", "22")),
        ({"allocatable_milli": 22_000, "available_milli": -500}, ("22", "0")),
        ({"allocatable_milli": -1, "available_milli": 5}, ("0", "0")),
    ],
)
def test_quantities(change: dict[str, int], expected: tuple[str, str]) -> None:
    """Whole CPUs or thousandths; never less than nothing, nor more than there is."""
    view = golden_view()
    view["numa_nodes"][0]["cpus"] |= change

    (cpu, *_) = made(view)["zones"][0]["resources"]

    assert (cpu["allocatable"], cpu["available"]) == expected


def test_huge_pages_and_memory_without_cpus() -> None:
    """Huge pages are resources of their own; a zone has only what there is."""
    view = golden_view()
    pages = {"capacity_bytes": 4 * GIB, "allocatable_bytes": 4 * GIB, "available_bytes": GIB}
    view["numa_nodes"][3] |= {"hugepages": {"2Mi": pages}, "socket": None}
    view["numa_nodes"][3]["cpus"] = {"count": 0, "allocatable_milli": 0, "available_milli": 0}

    zone = made(view)["zones"][3]

    assert [each["name"] for each in zone["resources"]] == ["memory", "hugepages-2Mi"]
    assert "parent" not in zone


def test_devices() -> None:
    """Profiles of a resource are added up, unhealthy ones are not allocatable; where is unknown is left out."""
    view = golden_view()
    row = {"resource": "a.com/b", "numa_node": 1, "profile": "p", "total": 4, "allocated": 1, "free": 2}
    view["devices"] = [row, row | {"profile": "q"}, row | {"numa_node": None}, row | {"resource": "a.com/a"}]

    zones = node_zones(made(view))

    assert [each["name"] for each in zones[1]["resources"]] == ["cpu", "memory", "a.com/a", "a.com/b"]
    assert amounts(zones[1])["a.com/b"] == (8, 6, 4)
    assert sum(len(amounts(zone)) for zone in zones) == 4 * 2 + 2
    view["devices"] = None
    assert all(amounts(zone).keys() == {"cpu", "memory"} for zone in node_zones(made(view)))


def test_nothing_is_said_while_it_is_unknown_what_runs() -> None:
    """The object then stays as it was."""
    assert topology_of(view_of(known=False), "single-numa-node", "pod") is None


def test_the_size_is_bounded() -> None:
    """64 NUMA nodes, hundreds of pools, CPUs with gaps: far from what etcd takes."""
    view = golden_view()
    node = view["numa_nodes"][0]
    distances = {str(number): 10 for number in range(200)}
    view["numa_nodes"] = [node | {"id": number, "socket": number, "distances": distances} for number in range(200)]
    pool = {"name": "p" * 5000, "kind": "balloon", "cpus": "0,2," * 5000, "mems": "0", "exclusive": "1,3," * 5000}
    view["pools"] = [pool] * 500

    obj = made(view)

    assert len(node_zones(obj)) == 64
    assert max(int(each["name"].removeprefix("node-")) for each in obj["zones"][5]["costs"]) == 63
    assert len(json.dumps(obj)) < 300_000


_CONTAINERS = st.lists(st.tuples(st.sampled_from([WEB, DB]), st.integers(1, 12_000), st.integers(0, 20)), max_size=6)


@given(
    shape=st.sampled_from(["1s/1n/2c/1t", "1s/2n/8c/2t", "2s/4n/16c/2t", "2s/8n/32c/1t"]),
    policy=st.sampled_from(["none", "static", "topology-aware", "balloons"]),
    asked=_CONTAINERS,
)
def test_what_is_available_is_part_of_what_there_is(
    shape: str, policy: str, asked: list[tuple[Container, int, int]]
) -> None:
    """Under each policy, on each machine, and the zones are the machine."""
    containers = [
        replace(
            each,
            key=f"c{number}",
            pod=f"s{number}",
            pod_name=f"pod-{number}",
            cpu_milli=milli // 1000 * 1000 if each.qos is QosClass.GUARANTEED else milli,
            cpu_limit_milli=milli // 1000 * 1000 if each.qos is QosClass.GUARANTEED else each.cpu_limit_milli,
            memory_request_bytes=Interval(gib * GIB, gib * GIB),
        )
        for number, (each, milli, gib) in enumerate(asked)
    ]
    placer = policy_of(policy, {"reservedCpus": "0"} if policy in {"static", "balloons"} else {})
    machine = shaped(shape)
    fitting: list[Container] = []
    for each in containers:
        with suppress(Refused):
            planned(machine, [*fitting, each], placer)
            fitting.append(each)
    zones = node_zones(made(view_of(planned(machine, fitting, placer), policy=placer)))

    assert [each["name"] for each in zones] == [f"node-{number}" for number in range(len(machine.nodes))]
    assert sum(amounts(zone)["cpu"][0] for zone in zones) == 1000 * len(machine.cpus)
    assert sum(amounts(zone)["memory"][0] for zone in zones) == sum(each.memory_bytes for each in machine.nodes)
    for zone in zones:
        for capacity, allocatable, available in amounts(zone).values():
            assert 0 <= available <= allocatable <= capacity
