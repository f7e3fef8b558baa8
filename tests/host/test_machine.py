"""sysfs becomes a topology, with a sensible answer where files are missing."""

from pathlib import Path

import pytest

from criproxy.errors import CriproxyError
from criproxy.host import discover
from criproxy.model.machine.topology import Core, NumaNode, Package, Topology
from tests.host.tree import TWO_NODES, plant

GIB = 1 << 30


def test_a_plain_machine(tmp_path: Path) -> None:
    """CPUs, nodes with memory, cores and packages are read."""
    low, high = frozenset({0, 1}), frozenset({2, 3})

    assert discover(plant(tmp_path, TWO_NODES)) == Topology(
        cpus=low | high,
        mems=frozenset({0, 1}),
        nodes=(NumaNode(0, low, GIB), NumaNode(1, high, 2 * GIB)),
        cores=(Core(0, low), Core(2, high)),
        packages=(Package(0, low), Package(1, high)),
        online_cpus=low | high,
    )


def test_nodes_without_memory(tmp_path: Path) -> None:
    """A node without memory cannot be used for it; one with movable memory only is marked."""
    files = {
        **TWO_NODES,
        "sys/devices/system/node/online": "0-2\n",
        "sys/devices/system/node/has_normal_memory": "1\n",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 0 kB\n",
        "sys/devices/system/node/node2/cpulist": "\n",
        "sys/devices/system/node/node2/meminfo": "Node 2 MemTotal: 1048576 kB\n",
    }
    topology = discover(plant(tmp_path, files))

    assert topology.mems == {1, 2}
    assert [node.normal_memory for node in topology.nodes] == [False, True, False]


def test_nothing_there(tmp_path: Path) -> None:
    """A wrong host root is refused with the folder and what it should be."""
    with pytest.raises(CriproxyError, match=f"no CPUs found in {tmp_path}/sys/devices/system/cpu: the host root must"):
        discover(tmp_path)


def test_pods_may_use_a_part(tmp_path: Path) -> None:
    """What the pods' cgroup allows bounds the usable CPUs and memory, not the machine."""
    files = {
        "sys/fs/cgroup/kubepods/cpuset.cpus.effective": "1,3,9\n",
        "sys/fs/cgroup/kubepods/cpuset.mems.effective": "1\n",
    }
    topology = discover(plant(tmp_path, TWO_NODES | files))

    assert topology.cpus == {1, 3}
    assert topology.mems == {1}
    assert topology.online_cpus == {0, 1, 2, 3}


def test_pods_may_use_nothing(tmp_path: Path) -> None:
    """A cgroup that allows no online CPU is an error that names it."""
    files = {"sys/fs/cgroup/cpuset/kubepods/cpuset.cpus": "8-9\n"}
    with pytest.raises(CriproxyError, match=r"cpuset/kubepods allows the pods CPUs 8-9, none of which is online"):
        discover(plant(tmp_path, TWO_NODES | files))
