"""Scaling on use, end to end: from used vGPUs, by Prometheus and the adapter's rules, to more pods or fewer."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from criproxy.agent.kubernetes.client import PODS, ApiClient
from criproxy.agent.kubernetes.credentials import plain
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import EmbeddedRuntime
from lab.kubelet.kubelet import MiniKubelet
from tests.addresses import free_address
from tests.daemons import Serve
from tests.deploy.autoscaler import DEPLOYMENTS, HPAS, Autoscaler
from tests.deploy.prometheus import Prometheus, prometheus
from tests.deploy.test_manifests import loaded
from tests.deploy.test_queries import POLICY, program, scraping
from tests.node.devices.test_create_checks_vgpu import pod_with

QUOTA_MIB = 8192
NAMESPACE = "default"


class Cluster:
    """A node with criproxy, a Deployment whose pods have a vGPU each, and what scales it."""

    def __init__(self, serve: Serve, kubelet: MiniKubelet, api: ApiClient, server: Prometheus, name: str) -> None:
        self.serve, self.kubelet, self.api, self.server, self.name = serve, kubelet, api, server, name
        self.scaler = Autoscaler(api, server, name)
        self.containers: dict[str, str] = {}
        """Name of a pod → its container."""

    async def follow(self) -> None:
        """Start pods until there are as many as the Deployment wants."""
        deployment = await self.api.get(DEPLOYMENTS, self.name, NAMESPACE)
        assert deployment is not None
        for number in range(len(self.containers), deployment["spec"]["replicas"]):
            pod = f"{self.name}-{number}"
            metadata = {"name": pod, "namespace": NAMESPACE, "labels": {"app": self.name}}
            await self.api.create(PODS, {"metadata": metadata, "spec": {"nodeName": "node-1"}})
            _, made = await self.kubelet.run_pod(pod_with(f"GPU-a/gpu-8g/{number}", pod))
            self.containers[pod] = made["main"]

    async def use(self, *percent: int) -> None:
        """Let each pod use a share of its vGPU's memory, and wait until Prometheus knows."""
        used = dict(zip(self.containers, percent, strict=True))
        containers: list[dict[str, Any]] = [
            {"container_id": self.containers[pod], "kind": "nvidia", "card": "GPU-a"}
            | {"memory_mib": QUOTA_MIB * share // 100, "cores_percent": 5.0}
            for pod, share in used.items()
        ]
        card = {"card": "GPU-a", "memory_mib": QUOTA_MIB, "total_mib": 65536, "cores_percent": 25.0}
        classes = [{"kind": "nvidia", "cards": [card], "containers": containers}]
        await self.serve.ask("device-usage", at_s=1.0, period_s=300.0, classes=classes)
        total = sum(each["memory_mib"] for each in containers) << 20
        await self.server.until(f"sum(criproxy_vgpu_memory_used_bytes) == {total}")


@asynccontextmanager
async def running(directory: Path, name: str, jobs: list[dict[str, Any]]) -> AsyncIterator[Cluster]:
    """Start everything; *jobs*: what Prometheus scrapes beside the daemon."""
    address, server_program = free_address(), program()
    config = scraping(address)
    config["scrape_configs"] += jobs
    serve = Serve(directory, "--http", address, policy=POLICY.replace("cores: 25", "cores: 10"))
    async with (
        ApiServer() as apiserver,
        ApiClient(plain(apiserver.url)) as api,
        EmbeddedRuntime(serve.runtime),
        serve,
        serve.kubelet() as kubelet,
        prometheus(server_program, directory, config) as server,
    ):
        apiserver.served |= {HPAS, DEPLOYMENTS}
        metadata = {"name": name, "namespace": NAMESPACE}
        await api.create(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": 2}})
        cluster = Cluster(serve, kubelet, api, server, name)
        await cluster.follow()
        yield cluster


async def test_pods_come_and_go_with_the_use_of_their_vgpus(tmp_path: Path) -> None:
    """The manifest's autoscaler asks for a third pod when two use more than 80 %, and for one when all are idle."""
    manifest = loaded("hpa.yaml")
    async with running(tmp_path, manifest["metadata"]["name"], []) as cluster:
        hpa = await cluster.api.create(HPAS, manifest)
        scale = cluster.scaler.scale
        await cluster.use(25, 75)
        assert await scale() == 2, "50 % of 80 % would be less, but metrics of metrics-server are missing"
        await cluster.use(78, 86)
        assert await scale() == 2, "82 % is within the tolerance"
        await cluster.use(100, 95)
        assert await scale() == 3
        await cluster.follow()
        assert await scale() == 3, "the new pod has no value yet, and counts as unused"
        await cluster.use(100, 95, 10)
        assert await scale() == 3

        own = [each for each in manifest["spec"]["metrics"] if each["type"] == "Pods"]
        await cluster.api.merge_patch(HPAS, cluster.name, {"spec": {"metrics": own}}, NAMESPACE)
        await cluster.use(10, 10, 10)
        assert await scale() == hpa["spec"]["minReplicas"] == 1


def exporter(pods: Mapping[str, str]) -> web.Application:
    """Return kube-state-metrics as far as it is needed: *pods* and their nodes."""
    lines = [f'kube_pod_info{{namespace="{NAMESPACE}",pod="{pod}",node="{node}"}} 1\n' for pod, node in pods.items()]

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text="".join(lines))

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


@pytest.mark.parametrize("node", ["node-1", "node-2"])
async def test_queries_of_keda_join_pods_and_nodes(tmp_path: Path, node: str) -> None:
    """One has the use of the pods' own vGPUs; the other that of the nodes that run them, and of no others."""
    manifest = loaded("keda.yaml")
    name = manifest["metadata"]["name"]
    runner, address = web.AppRunner(exporter({f"{name}-0": node, "other-0": "node-1"})), free_address()
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()
    job = {"job_name": "kube-state-metrics", "scrape_interval": "1s", "honor_labels": True}
    try:
        async with running(tmp_path, name, [job | {"static_configs": [{"targets": [address]}]}]) as cluster:
            await cluster.use(25, 75)
            memory, cpu = (each["metadata"]["query"] for each in manifest["spec"]["triggers"])
            await cluster.server.until("kube_pod_info and on () criproxy_node_cpu_utilization_ratio")
            assert await cluster.server.query(memory) == [({}, 50.0)]
            found = await cluster.server.query(cpu)
            assert [(labels, 0 <= value <= 100) for labels, value in found] == (
                [({}, True)] if node == "node-1" else []
            )
    finally:
        await runner.cleanup()
