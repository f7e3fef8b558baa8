"""The CPUs of what a policy file names by a path of the host: cgroups, and devices in sysfs."""

from functools import partial
from pathlib import Path

from criproxy.discovery.cgroup import read_cgroup
from criproxy.discovery.files import read_ids, read_number
from criproxy.model.cpuset import CpuSet
from criproxy.policy.usable import HostReader


def host_reader(host_root: Path) -> HostReader:
    """What looks below *host_root*."""
    return HostReader(partial(read_cgroup, host_root), partial(read_device, host_root))


def read_device(host_root: Path, path: str) -> CpuSet | None:
    """The CPUs next to what is at *path* in sysfs, such as ``/sys/class/net/eth0``, or next to what it is a part of.

    None where there is no such thing, or where neither it nor anything around it says where it is.

    Raises:
        CriproxyError: a file there does not say what it should.
    """
    top = (host_root / "sys").resolve()
    place = (host_root / path.lstrip("/")).resolve()
    if not place.exists():
        return None
    while place != top and place.is_relative_to(top):
        if cpus := read_ids(place / "local_cpulist"):
            return cpus
        node = read_number(place / "numa_node")
        if node is not None and node >= 0:
            return read_ids(top / f"devices/system/node/node{node}/cpulist")
        place = place.parent
    return None
