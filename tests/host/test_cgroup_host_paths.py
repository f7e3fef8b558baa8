"""Where the devices are that a policy file names by their paths in sysfs."""

from pathlib import Path

import pytest

from criproxy.host.cgroup import host_reader, read_device
from criproxy.model.cpuset import format_cpuset

CARD = "sys/devices/pci0000:3a/0000:3a:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A network card that says which CPUs are near, one that knows its NUMA node only, and a loop device: nowhere."""
    other = "sys/devices/pci0000:80/0000:80:02.0"
    for folder in (f"{CARD}/net/eth0", f"{other}/net/eth1", "sys/devices/virtual/block/loop0", "sys/class/net"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / CARD / "local_cpulist").write_text("4-7\n")
    (tmp_path / other / "numa_node").write_text("2\n")
    (tmp_path / "sys/devices/virtual/block/loop0/numa_node").write_text("-1\n")
    node = tmp_path / "sys/devices/system/node/node2"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("8-11\n")
    for name, card in (("eth0", CARD), ("eth1", other)):
        (tmp_path / "sys/class/net" / name).symlink_to(Path("../..") / card.removeprefix("sys/") / "net" / name)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "cpus"),
    [
        pytest.param("/sys/class/net/eth0", "4-7", id="by-class"),
        pytest.param(f"/{CARD}", "4-7", id="by-address"),
        pytest.param("/sys/class/net/eth1", "8-11", id="by-numa-node"),
        pytest.param("/sys/devices/virtual/block/loop0", None, id="nowhere"),
        pytest.param("/sys/class/net/eth7", None, id="not-there"),
        pytest.param(f"/{CARD}/net/eth7", None, id="not-there-either"),
        pytest.param("/sys/../etc", None, id="elsewhere"),
    ],
)
def test_cpus_next_to_a_device(host: Path, path: str, cpus: str | None) -> None:
    """Its own list, that of what it is a part of, or its NUMA node's; nothing where nobody knows."""
    (host / "etc").mkdir()
    found = read_device(host, path)

    assert (None if found is None else format_cpuset(found), host_reader(host).device(path)) == (cpus, found)
