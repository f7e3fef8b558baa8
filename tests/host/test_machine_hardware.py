"""PCI devices, frequencies, huge pages and the kernel's lists are read beside the topology."""

from pathlib import Path

from criproxy.host.machine import inspect
from criproxy.model.machine.hardware import Frequency, HugePages, PciDevice
from tests.host.tree import TWO_NODES, plant

CPU = "sys/devices/system/cpu"
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
