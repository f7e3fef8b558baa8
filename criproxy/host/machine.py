"""Reads sysfs into a `Topology`: the whole machine, and the CPUs that pods may use. Other modules read the parts."""

from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.host.cgroup import read_allowed
from criproxy.host.cpu_kinds import read_kinds
from criproxy.host.cpus import (
    read_caches,
    read_cores,
    read_dies,
    read_isolated,
    read_online,
    read_packages,
    read_present,
)
from criproxy.host.numa import read_distances, read_nodes
from criproxy.model.cpuset import numbered
from criproxy.model.machine.topology import Topology


def discover(host_root: Path = Path("/"), pods: str = "") -> Topology:
    """Read the machine with /sys and /proc below *host_root*, as far as placement needs it.

    Args:
        host_root: prefix of these paths.
        pods: the cgroup above those of all pods; if empty, the usual one.

    Raises:
        CriproxyError: There are no CPUs, a file has invalid content, or the pods' cgroup allows no online CPU.
    """
    online = read_online(host_root)
    nodes = read_nodes(host_root, online)
    cores = read_cores(host_root, online)
    allowed = read_allowed(host_root, pods)
    cpus = online if allowed.cpus is None else online & allowed.cpus
    if not cpus:
        allows = numbered("CPU", allowed.cpus or frozenset())
        raise CriproxyError(f"{allowed.path} allows the pods {allows}, none of which is online")
    mems = frozenset(node.id for node in nodes if node.memory_bytes) or frozenset(node.id for node in nodes)
    return Topology(
        cpus=cpus,
        mems=mems if allowed.mems is None else mems & allowed.mems,
        nodes=nodes,
        cores=cores,
        packages=read_packages(host_root, cores),
        online_cpus=online,
        dies=read_dies(host_root, cores),
        l2_groups=read_caches(host_root, online, 2),
        l3_groups=read_caches(host_root, online, 3),
        cpu_kinds=read_kinds(host_root, cores),
        distances=read_distances(host_root, nodes),
        isolated_cpus=read_isolated(host_root) & online,
        offline_cpus=read_present(host_root) - online,
    )
