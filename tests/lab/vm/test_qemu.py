"""QEMU's command line for a guest, and what is said about devices that cannot be."""

from itertools import pairwise
from pathlib import Path

import pytest

from lab.vm.machines import UsageError, named
from lab.vm.qemu import Hardware, PciDevice, Shared, command, parse_pci


def words(hardware: Hardware, *folders: Shared, terminal: bool = False) -> list[str]:
    """The command line."""
    return command(hardware, Path("/k"), Path("/i"), list(folders), Path("/run/c,d"), terminal=terminal)


def values(line: list[str], option: str) -> list[str]:
    """What follows each *option*."""
    return [value for word, value in pairwise(line) if word == option]


def test_nodes_have_their_cpus_memory_and_distances() -> None:
    """Each node is one of QEMU's, and its memory a backend of its own."""
    line = words(Hardware(named("2s-4n-smt")))

    assert values(line, "-smp") == ["8,sockets=2,dies=1,cores=2,threads=2"]
    assert values(line, "-m") == ["2048M"]
    assert values(line, "-numa")[:4] == [f"node,nodeid={n},cpus={2 * n}-{2 * n + 1},memdev=mem{n}" for n in range(4)]
    assert values(line, "-object") == [f"memory-backend-ram,id=mem{n},size=512M" for n in range(4)]
    assert "dist,src=0,dst=2,val=21" in values(line, "-numa")


def test_persistent_memory_is_a_device_of_its_node() -> None:
    """It is no memory at boot, has room for its metadata, and the board has slots for it."""
    line = words(Hardware(named("2s-2n+2pmem")))

    assert values(line, "-machine")[0].endswith(",nvdimm=on")
    assert values(line, "-m") == ["1536M,slots=2,maxmem=6656M"]
    assert "node,nodeid=2" in values(line, "-numa")
    assert "memory-backend-ram,id=mem2,size=640M" in values(line, "-object")
    assert "nvdimm,id=pmem2,memdev=mem2,node=2" in values(line, "-device")


def test_a_device_stands_behind_a_bridge_on_its_node() -> None:
    """Linux takes a device's node from its host bridge."""
    line = words(Hardware(named("4s-8n"), pci=(PciDevice(2, "bochs-display"), PciDevice(7, "e1000e"))))

    assert "pxb-pcie,id=host1,bus=pcie.0,bus_nr=48,numa_node=7" in values(line, "-device")
    assert "pcie-root-port,id=port1,bus=host1,chassis=2" in values(line, "-device")
    assert "e1000e,bus=port1" in values(line, "-device")


def test_isolated_cpus_are_an_argument_of_the_kernel() -> None:
    """Beside those that every guest and this one have."""
    hardware = Hardware(named("1s-1n"), isolated=frozenset({1, 2}), kernel_arguments="nohz_full=1")

    assert values(words(hardware), "-append")[0].endswith(" cgroup_no_v1=all isolcpus=1-2 nohz_full=1")


def test_folders_are_shared_by_tag() -> None:
    """Read-only where nothing may be written; commas in a path are no end of it."""
    line = words(Hardware(named("1s-1n")), Shared("vmroot", Path("/"), read_only=True), Shared("out", Path("/a,b")))

    assert [value.partition(",security")[0] for value in values(line, "-fsdev")] == [
        "local,id=vmroot,path=/",
        "local,id=out,path=/a,,b",
    ]
    assert ["readonly=on" in value for value in values(line, "-fsdev")] == [True, False]
    assert "virtio-9p-pci,bus=pcie.0,fsdev=out,mount_tag=out" in values(line, "-device")
    assert values(line, "-chardev") == ["file,id=console,path=/run/c,,d"]


def test_only_a_shell_has_a_terminal() -> None:
    """Everything else has no standard input."""
    assert "virtconsole,chardev=tty" not in words(Hardware(named("1s-1n")))
    assert "virtconsole,chardev=tty" in words(Hardware(named("1s-1n")), terminal=True)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        pytest.param("1:gpu", PciDevice(1, "bochs-display"), id="a-kind"),
        pytest.param("0", PciDevice(0, "virtio-rng-pci"), id="whatever"),
        pytest.param("3:nvme", PciDevice(3, "nvme"), id="qemu's-name"),
    ],
)
def test_devices_are_read_from_words(text: str, device: PciDevice) -> None:
    """A node, and what stands there."""
    assert parse_pci(text, named("2s-4n-smt")) == device


@pytest.mark.parametrize("text", ["4:gpu", "gpu", ""])
def test_a_device_on_no_node_is_refused(text: str) -> None:
    """The sentence says which nodes there are."""
    with pytest.raises(UsageError, match="a node from 0 to 3"):
        parse_pci(text, named("2s-4n-smt"))
