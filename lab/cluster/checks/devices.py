"""Cards of criproxy's device plugin in pods of Kubernetes' own kubelet: whole, divided, and over their quota."""

from typing import TYPE_CHECKING, Any

from lab.cluster import cards, manifests
from lab.cluster.checks.placement import cgroup_of, container_id

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

GPU = "nvidia.com/gpu"
REASON = "GPUMemoryQuotaExceeded"


def with_resource(name: str, resource: str) -> manifests.Object:
    """A pod that asks for one card."""
    return manifests.pod(name, limits={resource: "1", "cpu": "50m", "memory": "32Mi"})


async def _inside(cluster: "Cluster", pod: str, *command: str) -> str:
    return await cluster.control_plane.kubectl("exec", pod, "--", *command)


async def whole_card(cluster: "Cluster") -> str:
    """A pod that asks for a GPU has that GPU alone."""

    async def offered() -> bool:
        node = await cluster.control_plane.get("/api/v1/nodes/worker-1")
        amounts = node["status"]["allocatable"]
        return (amounts.get(GPU), amounts.get(cards.RESOURCE)) == ("1", str(cards.VGPUS))

    await cluster.until(offered, "the node offered a GPU and the vGPUs")
    await cluster.run_pods(with_resource("whole", GPU))
    nodes = [each for each in (await _inside(cluster, "whole", "ls", "/dev")).split() if each.startswith("nvidia")]
    assert "nvidia1" in nodes, f"its nodes are {nodes}"
    assert "nvidia0" not in nodes, f"it has the other GPU's node: {nodes}"
    env = await _inside(cluster, "whole", "env")
    assert f"NVIDIA_VISIBLE_DEVICES={cards.WHOLE}" in env, env
    await cluster.delete_pods("whole")
    return f"nodes {', '.join(nodes)}"


async def vgpus(cluster: "Cluster") -> str:
    """As many pods get a vGPU as there are, and the next one waits."""
    names = [f"vgpu-{number}" for number in range(cards.VGPUS)]
    await cluster.run_pods(*(with_resource(name, cards.RESOURCE) for name in names))
    await cluster.control_plane.apply(with_resource("vgpu-waits", cards.RESOURCE))

    async def unschedulable() -> str:
        pod = await cluster.pod("vgpu-waits")
        found = [each for each in pod["status"].get("conditions", []) if each.get("reason") == "Unschedulable"]
        return str(found[0]["message"]) if found else ""

    said = await cluster.until(unschedulable, "the scheduler said that no vGPU is left")
    assert cards.RESOURCE in said, said
    await cluster.delete_pods("vgpu-0")
    await cluster.until_ready("vgpu-waits")
    return f"{len(names)} run; {said}"


async def over_quota(cluster: "Cluster") -> str:
    """A container over its quota is ended, and the pod says why."""
    pod = await cluster.pod("vgpu-1")
    pids = (cgroup_of(cluster, container_id(pod)) / "cgroup.procs").read_text().split()
    cluster.worker.cards.use(cards.DIVIDED, {int(pids[0]): 2 * cards.ALLOWED_MIB})

    async def ended() -> dict[str, Any]:
        (status,) = (await cluster.pod("vgpu-1"))["status"]["containerStatuses"]
        for state in (status["lastState"], status["state"]):
            if "terminated" in state:
                return dict(state["terminated"])
        return {}

    found = await cluster.until(ended, "the container was ended")
    cluster.worker.cards.nvml.say()
    assert found["reason"] == REASON, found
    assert str(2 * cards.ALLOWED_MIB) in found["message"], found
    others = [(await cluster.pod(name))["status"]["containerStatuses"][0]["restartCount"] for name in ("vgpu-2",)]
    assert others == [0], f"others were restarted: {others}"
    await cluster.delete_pods("vgpu-1", "vgpu-2", "vgpu-waits")
    return f"{found['reason']}: {found['message']}"


CHECKS = (whole_card, vgpus, over_quota)
