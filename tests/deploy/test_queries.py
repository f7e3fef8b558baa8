"""The queries of the manifests, evaluated by Debian's Prometheus, which scrapes a daemon with containers with vGPUs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.devices.classes.vgpu_profiles import CORES_ANNOTATION, MEMORY_ANNOTATION
from lab.emulator.runtime import EmbeddedRuntime
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.addresses import free_address
from tests.daemons import Serve
from tests.deploy.prometheus import Prometheus, find, prometheus
from tests.deploy.test_manifests import loaded, rules
from tests.node.devices.test_create_checks_vgpu import pod_with

POLICY = """
policy: static
reservedCpus: '0'
devices:
  podresources: {socket: ''}
  checkpoint: ''
  classes: [nvidia]
  plugin: {profiles: [{name: gpu-8g, class: nvidia, cores: 25}]}
"""
MEMORY_MIB = {"one": 2048, "two": 6144}
"""What the pods use of 8192 MiB."""
CORES_PERCENT = {"one": 5.0, "two": 20.0}
"""What they use of 25 %."""
UNLIMITED = {MEMORY_ANNOTATION: "0", CORES_ANNOTATION: "0"}
"""What a container's annotations say that has no quota."""


@dataclass
class Node:
    """A daemon with pods, and a server that scrapes it."""

    server: Prometheus

    async def evaluated(self, kind: str, name: str, matchers: str = "", group: str = "") -> list[Any]:
        """What the adapter would get of the rule that makes *name*."""
        (rule,) = (each for each in rules()[kind] if each["name"]["as"] == name)
        query = rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", group)
        return await self.server.until(query)

    async def of_nodes(self) -> list[Any]:
        """The use of CPUs and memory of the nodes: labels and value, one series each."""
        names = ("criproxy_node_cpu_percent", "criproxy_node_memory_percent")
        return [series for name in names for series in await self.evaluated("External", name)]


def program() -> Path:
    """Return Debian's Prometheus; skip without it."""
    if (found := find("prometheus")) is None:
        pytest.skip("no prometheus: python -m tests.deploy.prometheus fetches Debian's")
    return found


def pods(quotas: Mapping[str, str]) -> list[PodSpec]:
    """Return two pods of one container with a vGPU and *quotas* each; the second has one more without any."""
    made = [pod_with(f"GPU-a/gpu-8g/{number}", name) for number, name in enumerate(MEMORY_MIB)]
    own = [with_quotas(each.containers[0], quotas) for each in made]
    more = replace(with_quotas(pod_with("GPU-a/gpu-8g/2", "more").containers[0], UNLIMITED), name="more")
    return [replace(made[0], containers=(own[0],)), replace(made[1], containers=(own[1], more))]


def with_quotas(container: ContainerSpec, quotas: Mapping[str, str]) -> ContainerSpec:
    """Return the container with other annotations."""
    return replace(container, annotations={**container.annotations, **quotas})


async def report(serve: Serve, ids: dict[str, str]) -> None:
    """Report as the watcher does, once."""
    containers = [
        {
            "container_id": ids[name],
            "kind": "nvidia",
            "card": "GPU-a",
            "memory_mib": MEMORY_MIB.get(name, 500),
            "cores_percent": CORES_PERCENT.get(name, 3.0),
        }
        for name in ids
    ]
    card = {"card": "GPU-a", "memory_mib": 8192, "total_mib": 16384, "cores_percent": 25.0}
    classes = [{"kind": "nvidia", "cards": [card], "containers": containers}]
    arguments = {"at_s": 1.0, "period_s": 300.0, "classes": classes}
    await serve.ask("device-usage", **arguments)


def scraping(address: str) -> dict[str, Any]:
    """Return the configuration of a Prometheus that finds the daemon at *address* as if Kubernetes told of its pod."""
    config = loaded("prometheus.yaml")
    (job,) = config["scrape_configs"]
    job |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    del job["kubernetes_sd_configs"]
    host, port = address.split(":")
    found = {"__meta_kubernetes_pod_host_ip": host, "__meta_kubernetes_pod_node_name": "node-1"}
    job["static_configs"] = [{"targets": ["192.0.2.1"], "labels": found}]  # the pod's address, which is not asked
    job["relabel_configs"][0]["replacement"] = job["relabel_configs"][0]["replacement"].replace("9820", port)
    return config


@asynccontextmanager
async def scraped(directory: Path, quotas: Mapping[str, str]) -> AsyncIterator[Node]:
    """Two pods, one of which uses a quarter and one three quarters of its memory, as `pods` makes them."""
    server_program, address = program(), free_address()
    serve = Serve(directory, "--http", address, policy=POLICY)
    async with EmbeddedRuntime(serve.runtime), serve, serve.kubelet() as kubelet:
        ids: dict[str, str] = {}
        for pod in pods(quotas):
            _, made = await kubelet.run_pod(pod)
            ids |= {pod.name if name == "main" else name: key for name, key in made.items()}
        await report(serve, ids)
        async with prometheus(server_program, directory, scraping(address)) as server:
            yield Node(server)


async def test_queries_of_the_manifests(tmp_path: Path) -> None:
    """Each rule gives a value for each pod, or one of the nodes; what has no quota does not count for a pod."""
    async with scraped(tmp_path, {}) as node:
        pods, group = 'namespace="default",pod=~"one|two"', "pod"
        memory = await node.evaluated("Pods", "criproxy_vgpu_memory_used_percent", pods, group)
        cores = await node.evaluated("Pods", "criproxy_vgpu_cores_used_percent", pods, group)
        cpu, used = await node.of_nodes()
        ((named, _),) = await node.server.until("criproxy_build_info")

    assert named["instance"] == "node-1"
    assert {labels["pod"]: value for labels, value in memory} == {"one": 25.0, "two": 75.0}
    assert {labels["pod"]: round(value, 6) for labels, value in cores} == {"one": 20.0, "two": 80.0}
    for labels, value in (cpu, used):
        assert labels == {}
        assert 0 <= value <= 100


@pytest.mark.parametrize("lacking", [MEMORY_ANNOTATION, CORES_ANNOTATION])
async def test_nodes_count_whatever_is_limited(tmp_path: Path, lacking: str) -> None:
    """A node with a vGPU in use has a value, even if no profile has a quota of memory, or none has one of cores."""
    async with scraped(tmp_path, {lacking: "0"}) as node:
        for labels, value in await node.of_nodes():
            assert labels == {}
            assert 0 <= value <= 100
