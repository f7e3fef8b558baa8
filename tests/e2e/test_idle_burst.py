"""`burst: idle` on real containers: the quota of the kernel, that of the kubelet, and how long they were throttled."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.contract.answers import EXPLAIN
from tests.contract.shapes import differences
from tests.daemons import until
from tests.e2e.scene import ALL, MIB, Scene, proxied
from tests.nri.cannot import QUOTAS, cannot

POLICY = """policy: topology-aware
classes: {batch: {for: {qos: [Burstable]}, cpu: {burst: idle}}}
"""
BUSY = ("/bin/sh", "-c", "while :; do :; done")
LIMIT_US = 20_000
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="with a single CPU, none can be idle beside a container")


@pytest.fixture
async def bursting(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Scene]:
    """A class with a burst for Burstable pods."""
    async with asyncio.timeout(90), proxied(tmp_path, containerd, POLICY) as scene:
        yield scene


def batch() -> PodSpec:
    """A busy container that may use a fifth of a CPU, and asks for less."""
    spec = ContainerSpec("c0", IMAGE, BUSY, cpu_request_milli=100, cpu_limit_milli=200, memory_limit_bytes=64 * MIB)
    return PodSpec("batch", (spec,))


def owner(cpus: int) -> PodSpec:
    """A pod with CPUs of its own."""
    return PodSpec("owner", (ContainerSpec("c0", IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=64 * MIB),))


async def has_quota(scene: Scene, container_id: str, quota_us: int) -> None:
    """Wait until the cgroup of a container has that quota."""

    async def has() -> bool:
        return await scene.quota_us(container_id) == quota_us

    await until(has, 0.01)


async def shows(scene: Scene, container_id: str, quota_us: int) -> bool:
    """Whether the kubelet is told the quota that it has asked for, or with NRI the one in force."""
    shown = (await scene.client.container_status(container_id)).status.resources.linux.cpu_quota
    return shown == quota_us or (scene.is_plugin and bool(cannot(QUOTAS)) and shown == -1)


async def test_a_life(bursting: Scene) -> None:
    """Lifted while a CPU is idle, in force while an owner has all others, and the same after a restart."""
    scene = bursting
    _, ours = await scene.run(batch())
    assert await scene.quota_us(ours) == -1
    assert await shows(scene, ours, LIMIT_US)

    linux = api.LinuxContainerResources(cpu_shares=102, cpu_quota=LIMIT_US // 2, cpu_period=100_000)
    await scene.kubelet.update(ours, linux)
    assert await scene.quota_us(ours) == -1
    assert await shows(scene, ours, LIMIT_US // 2)
    linux.cpu_quota = LIMIT_US
    await scene.kubelet.update(ours, linux)

    sandbox_id, _ = await scene.run(owner(len(ALL) - 1))
    await has_quota(scene, ours, LIMIT_US)
    told = await scene.serve.ask("explain", container="default/batch/c0")
    assert differences(told["controls"], EXPLAIN["controls"]) == []
    assert any("with a CFS quota, because no CPU of NUMA node" in text for text in told["why"])

    async def is_throttled() -> bool:
        told = await scene.serve.ask("explain", container="default/batch/c0")
        throttling = told["controls"]["throttling"]
        assert not throttling["lifted"]
        assert throttling["unlimited"]["throttled_s"] == 0
        return bool(throttling["limited"]["throttled_s"])

    await until(is_throttled, 0.05)

    await scene.restart(signal.SIGKILL)
    assert await scene.quota_us(ours) == LIMIT_US
    await scene.kubelet.remove_pod(sandbox_id)
    await has_quota(scene, ours, -1)

    await scene.release()
    assert await scene.quota_us(ours) == LIMIT_US
