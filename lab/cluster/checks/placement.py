"""Pods of Kubernetes' own kubelet on the CPUs that criproxy gives them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from lab.cluster import manifests
from lab.cluster.worker import NAME

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

SMALL = {"cpu": "50m", "memory": "32Mi"}


def container_id(pod: dict[str, Any]) -> str:
    """That of its only container; empty while it has none that runs."""
    for status in pod["status"].get("containerStatuses", []):
        if "running" in status["state"]:
            return str(status["containerID"]).rpartition("/")[2]
    return ""


def cgroup_of(cluster: "Cluster", container: str) -> Path:
    """Its cpuset cgroup; AssertionError if it has none."""
    mount = Path("/sys/fs/cgroup")
    tree = mount if (mount / "cgroup.controllers").exists() else mount / "cpuset"
    found = list((tree / cluster.worker.cgroups.root.lstrip("/")).glob(f"**/{container or '-'}"))
    assert found, f"no cgroup of container {container!r}"
    return found[0]


def cpus_of(cluster: "Cluster", container: str) -> CpuSet:
    """What its cgroup says."""
    return parse_cpuset((cgroup_of(cluster, container) / "cpuset.cpus").read_text().strip())


async def every_class(cluster: "Cluster") -> str:
    """A pod of each QoS class runs, and the Guaranteed one has a CPU of its own."""
    objects = [
        manifests.guaranteed("guaranteed", "1"),
        manifests.pod("burstable", SMALL, {"cpu": "200m", "memory": "64Mi"}),
        manifests.pod("besteffort"),
    ]
    await cluster.run_pods(*objects)
    places = {}
    for each in objects:
        name = each["metadata"]["name"]
        pod = await cluster.pod(name)
        assert pod["spec"]["nodeName"] == NAME, f"{name} is on {pod['spec']['nodeName']}"
        assert pod["status"]["qosClass"].lower() == name
        places[name] = cpus_of(cluster, container_id(pod))
    own = places["guaranteed"]
    assert len(own) == 1, f"guaranteed has CPUs {format_cpuset(own)}"
    for name in ("burstable", "besteffort"):
        assert places[name], f"{name} has no CPU"
        assert not places[name] & own, f"{name} has CPUs {format_cpuset(places[name])}, among them guaranteed's"
    return ", ".join(f"{name} on CPUs {format_cpuset(cpus)}" for name, cpus in places.items())


async def exclusive_cpus_come_back(cluster: "Cluster") -> str:
    """When the Guaranteed pod is deleted, the others get its CPU back."""
    await cluster.delete_pods("guaranteed")
    pod = await cluster.pod("burstable")
    more = cluster.worker.cpus - cluster.worker.reserved

    async def widened() -> bool:
        return cpus_of(cluster, container_id(pod)) >= more

    await cluster.until(widened, "burstable had the CPU")
    cpus = cpus_of(cluster, container_id(pod))
    await cluster.delete_pods("burstable", "besteffort")
    return f"burstable on CPUs {format_cpuset(cpus)}"


CHECKS = (every_class, exclusive_cpus_come_back)
