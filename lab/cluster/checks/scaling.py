"""Kubernetes' HorizontalPodAutoscaler on what pods use of their vGPUs."""

from typing import TYPE_CHECKING

import yaml

from lab.cluster import adapter, cards, manifests
from lab.cluster.checks.devices import with_resource
from lab.cluster.checks.placement import cgroup_of, container_id
from lab.cluster.process import ClusterError
from lab.cluster.worker import HTTP
from lab.provenance import ROOT
from tests.deploy.prometheus import find, prometheus

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

NAME = "inference"
_HPA = ROOT / "deploy/scaling/hpa.yaml"


def autoscaler() -> manifests.Object:
    """The example of `deploy/scaling`, with what Kubernetes 1.20 knows and the rig has metrics of, and at once."""
    made: manifests.Object = next(yaml.safe_load_all(_HPA.read_text()))
    made["apiVersion"] = "autoscaling/v2beta2"
    spec = made["spec"]
    spec["metrics"] = [each for each in spec["metrics"] if each["type"] == "Pods"]
    spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    return made


def deployment() -> manifests.Object:
    """Pods with a vGPU each."""
    pod = with_resource(NAME, cards.RESOURCE)
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def on_use(cluster: "Cluster") -> str:
    """The number of pods follows what they use of their vGPUs: one, all that fit, and one again."""
    if (program := find("prometheus")) is None:
        raise ClusterError("there is no Prometheus: make setup fetches it")
    folder = cluster.control_plane.folder / "metrics"
    folder.mkdir()
    job = {"job_name": "criproxy", "static_configs": [{"targets": [HTTP]}]}
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    names: list[str] = []

    async def following(percent: int, count: int) -> bool:
        """Let each pod use so much; whether there are as many as wanted, all of them ready."""
        found = await cluster.control_plane.get(f"/api/v1/namespaces/default/pods?labelSelector=app={NAME}")
        running = {each["metadata"]["name"]: container_id(each) for each in found["items"]}
        names[:] = sorted(running)
        pids = [_pid(cluster, each) for each in running.values() if each]
        cluster.worker.cards.use(cards.DIVIDED, dict.fromkeys(pids, cards.ALLOWED_MIB * percent // 100))
        return len(running) == len(pids) == count

    async with prometheus(program, folder, config) as server, adapter.serving(folder, server, names):
        await cluster.control_plane.apply(*adapter.objects(), deployment(), autoscaler())
        try:
            said = []
            for percent, count in ((40, 1), (96, cards.VGPUS), (10, 1)):
                await cluster.until(lambda: following(percent, count), f"{count} pods ran at {percent} %", 120.0)  # noqa: B023 (awaited here)
                said.append(f"{count} at {percent} %")
        finally:
            await cluster.control_plane.try_kubectl("delete", "hpa,deployment", NAME)
            await cluster.control_plane.try_kubectl("delete", "apiservice", f"{adapter.VERSION}.{adapter.GROUP}")
            cluster.worker.cards.nvml.say()
    return ", ".join(said)


def _pid(cluster: "Cluster", container: str) -> int:
    return int((cgroup_of(cluster, container) / "cgroup.procs").read_text().split()[0])


CHECKS = (on_use,)
