"""Acceptance scenario 9: from the policy file to the request that the runtime gets.

`tests.devices.plugin.test_enforcement` has what scenarios 8 and 10 give with profiles.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.vgpu_profiles import Profile, WhenMissing
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.devices.plugin.plan import NVIDIA_ALONE, PluginPlan
from lab.kubelet.device_endpoint import AdmissionError
from tests.deviceplugin.joined import GPU_A, GPU_B, joined, nodes, pod, with_shared
from tests.node.devices.test_guard import envs
from tests.node.devices.test_hints import place
from tests.node.devices.test_joined import NODE_0, visible

PROFILE = Profile(name="gpu-8g", kind=NVIDIA.name, memory_mib=8192, cores_percent=25)
RESOURCE = PROFILE.resource
KIND = replace(NVIDIA, resources=(*NVIDIA.resources, RESOURCE))
FIRST = "GPU-a/gpu-8g/0"
FOLDER = f"{HAMI.containers}/GPU-a_gpu-8g_0"


def plan(when_missing: WhenMissing = "refuse") -> PluginPlan:
    """The section of the policy file."""
    profile = replace(PROFILE, enforce=("hami-core", "watch"), when_missing=when_missing)
    return replace(NVIDIA_ALONE, profiles=(profile,))


def mounts(config: api.ContainerConfig) -> list[tuple[str, str, bool]]:
    """Its mounts: in the container, on the host, and whether they are read-only."""
    return [(each.container_path, each.host_path, each.readonly) for each in config.mounts]


async def test_9_a_vgpu_with_hami_core(folder: Path) -> None:
    """Two vGPUs fit on each card; the container gets the library's limits and mounts, and CPUs next to its card."""
    async with joined(folder, GPU_A, GPU_B, classes=(KIND,)) as node:
        node.host.text(HAMI.library)
        node.host.text(HAMI.preload)
        node.host.text(f"{FOLDER}/GPU-a_gpu-8g_0.cache")
        await node.offer(plan=plan())
        assert node.kubelet.capacity(RESOURCE) == (4, 4)

        given, config = await node.run(pod("one"), {RESOURCE: 1})

        assert given == (FIRST,)
        assert visible(config) == b"GPU-a"
        assert set(nodes(config)) == with_shared("/dev/nvidia0")
        assert place(config) == NODE_0
        assert envs(config)["CUDA_DEVICE_MEMORY_LIMIT_0"] == b"8192m"
        assert envs(config)["CUDA_DEVICE_SM_LIMIT"] == b"25"
        assert envs(config)["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == b"/usr/local/vgpu/GPU-a_gpu-8g_0.cache"
        assert mounts(config) == [
            ("/usr/local/vgpu", FOLDER, False),
            ("/usr/local/vgpu/libvgpu.so", HAMI.library, True),
            ("/tmp/vgpulock", HAMI.lock, False),
            ("/etc/ld.so.preload", HAMI.preload, True),
        ]
        assert not any((node.host.root / FOLDER[1:]).iterdir())  # what a former container left is gone
        assert config.annotations["devices.criproxy.io/profile"] == "gpu-8g"


@pytest.mark.parametrize("when_missing", ["next", "refuse"])
async def test_9_without_the_library(folder: Path, when_missing: WhenMissing) -> None:
    """The next one in the list does it, or the pod is not admitted: as the profile says. No folder is made for it."""
    async with joined(folder, GPU_A, classes=(KIND,)) as node:
        await node.offer(plan=plan(when_missing))
        if when_missing == "refuse":
            with pytest.raises(AdmissionError, match=r"hami-core needs /usr/local/vgpu/libvgpu.so"):
                await node.admit(pod("one"), {RESOURCE: 1})
            return
        _, config = await node.run(pod("one"), {RESOURCE: 1})
        assert visible(config) == b"GPU-a"
        assert mounts(config) == []
        assert not (node.host.root / HAMI.preload[1:]).exists()
