"""Acceptance scenarios 8, 9 and 10 with profiles: from the policy file to the request that the runtime gets."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, WhenMissing
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.devices.plugin.plan import NVIDIA_ALONE, PluginPlan
from criproxy.errors import StatusCode
from lab.kubelet.device_endpoint import AdmissionError
from tests.deviceplugin.joined import GPU_A, GPU_B, joined, nodes, pod, with_shared
from tests.node.devices.test_hints import place
from tests.node.devices.test_joined import NODE_0, visible

PROFILE = Profile(name="gpu-8g", kind=NVIDIA.name, memory_mib=8192, cores_percent=25)
RESOURCE = PROFILE.resource
KIND = replace(NVIDIA, resources=(*NVIDIA.resources, RESOURCE))
FIRST = "GPU-a/gpu-8g/0"
FOLDER = f"{HAMI.containers}/GPU-a_gpu-8g_0"


def plan(*enforce: Enforcement, profile: Profile = PROFILE, when_missing: WhenMissing = "refuse") -> PluginPlan:
    """The section of the policy file."""
    return replace(NVIDIA_ALONE, profiles=(replace(profile, enforce=enforce, when_missing=when_missing),))


def envs(config: api.ContainerConfig) -> dict[str, str]:
    """The variables of a create as the runtime got it."""
    return {env.key: env.value.decode() for env in config.envs}


def mounts(config: api.ContainerConfig) -> list[tuple[str, str, bool]]:
    """Its mounts: in the container, on the host, and whether they are read-only."""
    return [(each.container_path, each.host_path, each.readonly) for each in config.mounts]


async def test_9_a_vgpu_with_hami_core(folder: Path) -> None:
    """Two vGPUs fit on each card; the container gets the library's limits and mounts, and CPUs next to its card."""
    async with joined(folder, GPU_A, GPU_B, classes=(KIND,)) as node:
        node.host.text(HAMI.library)
        node.host.text(HAMI.preload)
        node.host.text(f"{FOLDER}/GPU-a_gpu-8g_0.cache")
        await node.offer(plan=plan("hami-core", "watch"))
        assert node.kubelet.capacity(RESOURCE) == (4, 4)

        given, config = await node.run(pod("one"), {RESOURCE: 1})

        assert given == (FIRST,)
        assert visible(config) == b"GPU-a"
        assert set(nodes(config)) == with_shared("/dev/nvidia0")
        assert place(config) == NODE_0
        assert (
            envs(config).items()
            >= {
                "CUDA_DEVICE_MEMORY_LIMIT_0": "8192m",
                "CUDA_DEVICE_SM_LIMIT": "25",
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/GPU-a_gpu-8g_0.cache",
            }.items()
        )
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
        await node.offer(plan=plan("hami-core", "watch", when_missing=when_missing))
        if when_missing == "refuse":
            with pytest.raises(AdmissionError, match=r"hami-core needs /usr/local/vgpu/libvgpu.so"):
                await node.admit(pod("one"), {RESOURCE: 1})
            return
        _, config = await node.run(pod("one"), {RESOURCE: 1})
        assert visible(config) == b"GPU-a"
        assert mounts(config) == []
        assert not (node.host.root / HAMI.preload[1:]).exists()


async def test_10_the_drivers_own_limit(folder: Path) -> None:
    """On cgroup v2 the driver is told the memory; on cgroup v1 the pod is not admitted."""
    async with joined(folder, GPU_A, classes=(KIND,)) as node:
        await node.offer(plan=plan("nvidia-memory-limit"))
        with pytest.raises(AdmissionError, match=r"nvidia-memory-limit needs /sys/fs/cgroup/cgroup.controllers"):
            await node.admit(pod("one"), {RESOURCE: 1})
        node.host.text("/sys/fs/cgroup/cgroup.controllers")

        _, config = await node.run(pod("two"), {RESOURCE: 1})
        found = envs(config)
        assert (found["NVIDIA_GPU_MEMORY_REQUEST"], found["NVIDIA_GPU_MEMORY_LIMIT"]) == ("8192", "8192")


async def test_8_a_profile_of_four_parts_with_mps(folder: Path) -> None:
    """Beside what NVIDIA's plugin gives a client of MPS, it gets its limits; without the daemon nothing is created."""
    quarter = replace(PROFILE, name="gpu-8g", memory_mib=4096)
    async with joined(folder, GPU_A, classes=(KIND,)) as node:
        pipe = f"/run/nvidia/mps/{RESOURCE}/pipe"
        node.host.text(f"{pipe}/control")
        await node.offer(plan=plan("mps", profile=quarter))
        assert node.kubelet.capacity(RESOURCE) == (4, 4)

        _, config = await node.run(pod("one"), {RESOURCE: 1})
        assert (
            envs(config).items()
            >= {
                "NVIDIA_VISIBLE_DEVICES": "GPU-a",
                "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{RESOURCE}/pipe",
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
            }.items()
        )
        assert mounts(config) == [
            (f"/mps/{RESOURCE}/pipe", pipe, False),
            ("/dev/shm", "/run/nvidia/mps/shm", False),
        ]

        given = await node.admit(pod("two"), {RESOURCE: 1})
        (node.host.root / f"{pipe}/control"[1:]).unlink()
        (node.host.root / pipe[1:]).rmdir()
        with pytest.raises(RuntimeCallError, match=pipe) as refused:
            await node.create(pod("two"), given)
        assert refused.value.code is StatusCode.FAILED_PRECONDITION
        assert len(node.world.runtime.core.records.containers) == 1  # the first
        assert not (node.host.root / pipe[1:]).exists()
