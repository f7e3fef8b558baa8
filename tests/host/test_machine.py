"""sysfs becomes a topology, with a sensible answer where files are missing."""

from pathlib import Path

import pytest

from criproxy.errors import CriproxyError
from criproxy.host import discover
from criproxy.host.machine import inspect, read_kinds
from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.hardware import Frequency, HugePages, PciDevice
from criproxy.model.machine.topology import Core, CpuKind, NumaNode, Package, Topology
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


# ---------------------------------------------------------------- slow and fast CPUs


CPU = "sys/devices/system/cpu"
CORES = [Core(cpu, frozenset({cpu})) for cpu in range(4)]


def per_cpu(name: str, *values: int) -> dict[str, str]:
    """Return the file *name* of CPU 0, 1, … with these numbers."""
    return {f"{CPU}/cpu{cpu}/{name}": f"{value}\n" for cpu, value in enumerate(values)}


def maxima(*values: int) -> dict[str, str]:
    """Return the highest frequencies."""
    return per_cpu("cpufreq/cpuinfo_max_freq", *values)


COUNTERS = {"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"}


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        pytest.param({}, [], id="nothing-said"),
        pytest.param(maxima(3_000_000, 3_000_000, 3_000_000, 3_000_000), [], id="alike"),
        pytest.param(maxima(5_200_000, 5_000_000, 5_000_000, 5_100_000), [], id="best-cores-boost-further"),
        pytest.param(maxima(5_000_000, 5_200_000, 3_900_000, 3_900_000), ["2-3", "0", "1"], id="no-base-frequency"),
        pytest.param(
            maxima(5_000_000, 5_200_000, 3_900_000, 3_900_000)
            | per_cpu("cpufreq/base_frequency", 1_900_000, 1_900_000, 1_400_000, 1_400_000),
            ["2-3", "0-1"],
            id="two-kinds-and-boost",
        ),
        pytest.param(per_cpu("cpu_capacity", 1024, 718, 718, 1024), ["1-2", "0,3"], id="capacities"),
        pytest.param(per_cpu("cpu_capacity", 1024, 1024, 1024, 1024), [], id="one-capacity"),
        pytest.param(COUNTERS, ["2-3", "0-1"], id="counters-only"),
        pytest.param(COUNTERS | maxima(3_000_000, 3_000_000, 3_000_000, 3_000_000), [], id="counters-of-equal-cores"),
        pytest.param({"sys/devices/cpu_core/cpus": "0-3\n"}, [], id="one-kind-of-counters"),
    ],
)
def test_kinds(tmp_path: Path, files: dict[str, str], kinds: list[str]) -> None:
    """Kinds go from slow to fast, by capacity and frequencies; counters count only where there is nothing else."""
    found = read_kinds(plant(tmp_path, files), CORES)

    assert [format_cpuset(kind.cpus) for kind in found] == kinds


def test_speeds(tmp_path: Path) -> None:
    """A kind tells its capacity, its base frequency and the highest of its maxima."""
    files = (
        per_cpu("cpu_capacity", 500, 500, 1024, 1024)
        | maxima(3_000_000, 3_100_000, 4_000_000, 4_000_000)
        | per_cpu("cpufreq/base_frequency", 1_000_000, 1_000_000, 2_000_000, 2_000_000)
    )
    slow = CpuKind(frozenset({0, 1}), 500, 1_000_000, 3_100_000)
    fast = CpuKind(frozenset({2, 3}), 1024, 2_000_000, 4_000_000)

    assert read_kinds(plant(tmp_path, files), CORES) == (slow, fast)


# ---------------------------------------------------------------- what is read beside the topology


PCI = "sys/bus/pci/devices"
LOW, ALL = frozenset({0, 1}), frozenset({0, 1, 2, 3})


def test_pci_devices(tmp_path: Path) -> None:
    """Local CPUs are the device's own list or mask, else those of its node, else all; offline ones are left out."""
    files = {
        f"{PCI}/0000:3b:00.0/class": "0x030200\n",
        f"{PCI}/0000:3b:00.0/vendor": "0x10de\n",
        f"{PCI}/0000:3b:00.0/device": "0x20b5\n",
        f"{PCI}/0000:3b:00.0/numa_node": "0\n",
        f"{PCI}/0000:3b:00.0/local_cpulist": "0-1,64-65\n",
        f"{PCI}/0000:3c:00.0/local_cpus": "00000000,00000003\n",
        f"{PCI}/0000:3d:00.0/numa_node": "0\n",
        f"{PCI}/0000:3e:00.0/numa_node": "-1\n",
        f"{PCI}/0000:3f:00.0/local_cpulist": "64\n",
    }
    pci = inspect(plant(tmp_path, TWO_NODES | files)).pci

    assert pci[0] == PciDevice("0000:3b:00.0", "0x030200", "0x10de", "0x20b5", 0, LOW)
    assert [(device.numa_node, device.local_cpus) for device in pci[1:]] == [(-1, LOW), (0, LOW), (-1, ALL), (-1, ALL)]


def test_frequencies(tmp_path: Path) -> None:
    """CPUs of one frequency are together; AMD's base frequency stands in another file."""
    files = {
        f"{CPU}/cpu0/cpufreq/cpuinfo_min_freq": "800000\n",
        f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "4000000\n",
        f"{CPU}/cpu0/cpufreq/base_frequency": "2700000\n",
        f"{CPU}/cpu2/acpi_cppc/nominal_freq": "2400\n",
    }
    found = inspect(plant(tmp_path, TWO_NODES | files)).frequencies

    assert found == (Frequency(LOW, 2_700_000, 800_000, 4_000_000), Frequency(frozenset({2, 3}), 2_400_000, 0, 0))


def test_huge_pages(tmp_path: Path) -> None:
    """Each node has its pages of each size."""
    pages = "sys/devices/system/node/node1/hugepages"
    files = {f"{pages}/hugepages-2048kB/nr_hugepages": "512\n", f"{pages}/hugepages-2048kB/free_hugepages": "500\n"}
    found = inspect(plant(tmp_path, TWO_NODES | files | {f"{pages}/odd/x": ""})).hugepages

    assert found == (HugePages(1, 2 << 20, 512, 500),)


def test_lists_of_the_kernel(tmp_path: Path) -> None:
    """`offline` and `possible` may name CPUs that do not exist, far beyond any real one; `nohz_full` may be (null)."""
    files = {
        f"{CPU}/present": "0-5\n",
        f"{CPU}/possible": "0-8191\n",
        f"{CPU}/offline": "4-8191\n",
        f"{CPU}/nohz_full": "   (null)\n",
        f"{CPU}/isolated": "1,5\n",
        "sys/devices/system/node/has_cpu": "0-1\n\0",
    }
    hardware = inspect(plant(tmp_path, TWO_NODES | files))

    assert hardware.topology.offline_cpus == {4, 5}
    assert hardware.topology.isolated_cpus == {1}
    assert (hardware.possible_cpus, hardware.nohz_full_cpus) == ("0-8191", frozenset())
    assert hardware.node_states == {"online": {0, 1}, "has_cpu": {0, 1}, "has_normal_memory": {0, 1}}
