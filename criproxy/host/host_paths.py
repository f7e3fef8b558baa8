"""The CPUs of paths of the host in a policy file: cgroups, and devices in sysfs."""

from functools import partial
from pathlib import Path

from criproxy.host.cgroup import read_cgroup
from criproxy.host.files import read_ids, read_number
from criproxy.model.cpuset import CpuSet
from criproxy.placement.options.usable import HostReader


def host_reader(host_root: Path) -> HostReader:
    """Return a reader for paths below *host_root*."""
    return HostReader(partial(read_cgroup, host_root), partial(read_device, host_root))


def read_device(host_root: Path, path: str) -> CpuSet | None:
    """Return the CPUs next to the device at *path* in sysfs, such as ``/sys/class/net/eth0``, or next to its parent.

    None if the path does not exist, or if neither the device nor any parent has a location.

    Raises:
        CriproxyError: A file has invalid content.
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
