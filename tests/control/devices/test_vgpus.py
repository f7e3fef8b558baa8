"""vGPUs on a node: a container sees its card, criproxy keeps its quota, and nobody else gets its vGPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.allocation import Response, joined
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.holdings import quota_of
from criproxy.devices.rules import DeviceRules
from criproxy.devices.vgpus import Quota, Vgpu, annotations_of
from criproxy.emulator.kubelet import PodSpec
from criproxy.errors import StatusCode
from tests.control.devices.test_hints import NODE_1, SIZES, Node, node_at, place
from tests.control.devices.test_joined import nodes, visible

RESOURCE = "criproxy.io/gpu-8g"
RULES = DeviceRules(classes=(replace(NVIDIA, resources=(*NVIDIA.resources, RESOURCE)),))


def pod_with(vgpu: str, name: str) -> PodSpec:
    """A pod whose container has the annotations of our Allocate for a vGPU."""
    part = Vgpu(id=vgpu, card=vgpu.partition("/")[0], profile="gpu-8g", memory_mib=8192, cores_percent=25)
    annotations = {**joined(Response(), RESOURCE, [vgpu]).annotations, **annotations_of(part)}
    return PodSpec(name, (replace(SIZES["Burstable"], annotations=annotations),))


def quota(node: Node, name: str) -> Quota | None:
    """What criproxy keeps of the quota of a pod's container."""
    found = next(each for each in node.world.controller.node.containers.values() if each.pod_name == name)
    return quota_of(node.world.controller.devices.holdings.of(found) or {}, "nvidia")


async def test_a_vgpu_is_its_card_with_a_quota(tmp_path: Path) -> None:
    """The container sees the card of its vGPU, is placed next to it, and its quota is kept with what it was given."""
    node = node_at(tmp_path, RULES)
    async with node.world:
        _, config = await node.create(pod_with("GPU-b/gpu-8g/1", "one"))

        assert visible(config) == b"GPU-b"
        assert nodes(config) == ["/dev/nvidia1", "/dev/nvidiactl"]
        assert place(config) == NODE_1
        assert quota(node, "one") == Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)


async def test_another_vgpu_of_the_card_is_another_containers(tmp_path: Path) -> None:
    """Two containers can have two vGPUs of one card."""
    node = node_at(tmp_path, RULES)
    async with node.world:
        await node.create(pod_with("GPU-b/gpu-8g/0", "one"))
        _, config = await node.create(pod_with("GPU-b/gpu-8g/1", "two"))

        assert visible(config) == b"GPU-b"


async def test_a_vgpu_has_one_container(tmp_path: Path) -> None:
    """A create with the vGPU of another pod's container is refused with that container's name, until it has ended."""
    node = node_at(tmp_path, RULES)
    async with node.world:
        key, _ = await node.create(pod_with("GPU-b/gpu-8g/0", "one"))
        start = api.StartContainerRequest(container_id=key)
        await node.world.client.call("StartContainer", start, api.StartContainerResponse)
        with pytest.raises(RuntimeCallError) as caught:
            await node.create(pod_with("GPU-b/gpu-8g/0", "two"))
        assert caught.value.code is StatusCode.FAILED_PRECONDITION
        assert "still has its vGPU GPU-b/gpu-8g/0" in caught.value.details
        assert "/one/" in caught.value.details

        stop = api.StopContainerRequest(container_id=key)
        await node.world.client.call("StopContainer", stop, api.StopContainerResponse)
        _, config = await node.create(pod_with("GPU-b/gpu-8g/0", "three"))
        assert visible(config) == b"GPU-b"
