"""Acceptance scenarios of the device plugin, from its file to the request that the runtime gets."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.vgpu_profiles import Profile, WhenMissing
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Advertised, PluginPlan
from criproxy.errors import StatusCode
from lab.kubelet.device_endpoint import AdmissionError
from tests.deviceplugin.joined import GPU_A, GPU_B, joined, nodes, pod, replicas, sharing, with_shared
from tests.deviceplugin.node import GPU
from tests.node.devices.test_guard import envs
from tests.node.devices.test_hints import NODE_1, place
from tests.node.devices.test_joined import NODE_0, visible

SHARED = f"{GPU}.shared"
NPU = "aliyun.com/npu"
ALI = DeviceClass(name="ali-npu", resources=(NPU,), id_format="index", per_device=("/dev/npu{index}",))


# -------------------------------------------------------------------- 4


async def test_4_replicas_of_two_gpus(folder: Path) -> None:
    """Ten ids; whoever has one sees its GPU, gets its node, and CPUs and memory next to it."""
    async with joined(folder, GPU_A, GPU_B) as node:
        await node.offer(sharing())
        assert node.kubelet.healthy(GPU) == replicas("GPU-a", "GPU-b")

        found = {}
        for number in range(10):
            (given,), config = await node.run(pod(f"pod-{number}"), {GPU: 1})
            found[given] = config

        assert found.keys() == replicas("GPU-a", "GPU-b")
        for given, config in found.items():
            is_a = given.startswith("GPU-a::")
            assert visible(config) == (b"GPU-a" if is_a else b"GPU-b")
            assert set(nodes(config)) == with_shared("/dev/nvidia0" if is_a else "/dev/nvidia1")
            assert place(config) == (NODE_0 if is_a else NODE_1)
            assert config.annotations["devices.criproxy.io/nvidia.com_gpu"] == given


# -------------------------------------------------------------------- 6


async def test_6_two_replicas_where_one_is_allowed(folder: Path) -> None:
    """The kubelet hears why, the pod is not admitted, and nobody keeps anything of it."""
    async with joined(folder, GPU_A, GPU_B) as node:
        await node.offer(sharing(renameByDefault=True, failRequestsGreaterThanOne=True))
        with pytest.raises(AdmissionError) as refused:
            await node.admit(pod("two"), {SHARED: 2})

        assert str(refused.value) == (
            "Allocate failed due to rpc error: code = Unknown desc = invalid allocation request for "
            '"nvidia.com/gpu.shared": invalid request: maximum request size for shared resources is 1; found 2, which '
            "is unexpected"
        )
        assert not node.kubelet.manager.given
        assert not node.kubelet.podresources.entries
        assert (node.node.status(SHARED).counts.allocated, node.node.status(SHARED).held) == (0, 0)
        found = {(await node.run(pod(f"pod-{number}"), {SHARED: 1}))[0][0] for number in range(10)}
        assert found == replicas("GPU-a", "GPU-b")


# -------------------------------------------------------------------- 8

MPS = """\
version: v1
flags: {mpsRoot: /run/nvidia/mps}
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""
PIPE = "/run/nvidia/mps/nvidia.com/gpu/pipe"
KUBELETS_SHM = api.Mount(container_path="/dev/shm", host_path="/pods/shm")
OWN = api.Mount(container_path="/data", host_path="/pods/data", readonly=True)


async def test_8_four_parts_with_mps(folder: Path) -> None:
    """The pipe directory and two mounts, as NVIDIA's plugin gives them; the daemon's memory replaces the kubelet's."""
    async with joined(folder, GPU_A) as node:
        (node.host.root / PIPE[1:]).mkdir(parents=True)
        await node.offer(MPS)
        assert node.kubelet.healthy(GPU) == replicas("GPU-a", each=4)

        given = await node.admit(pod("mps"), {GPU: 1})
        _, config = await node.create(pod("mps"), given, KUBELETS_SHM, OWN)

        assert {(env.key, env.value) for env in config.envs} == {
            ("NVIDIA_VISIBLE_DEVICES", b"GPU-a"),
            ("CUDA_MPS_PIPE_DIRECTORY", b"/mps/nvidia.com/gpu/pipe"),
        }
        assert len(config.envs) == 2
        assert [(mount.host_path, mount.container_path) for mount in config.mounts] == [
            (PIPE, "/mps/nvidia.com/gpu/pipe"),
            ("/run/nvidia/mps/shm", "/dev/shm"),
            ("/pods/data", "/data"),
        ]
        assert set(nodes(config)) == with_shared("/dev/nvidia0")
        assert place(config) == NODE_0


async def test_8_without_the_daemons_directory(folder: Path) -> None:
    """The create fails with its name, nothing is created; once it is there, the kubelet's next try succeeds."""
    async with joined(folder, GPU_A) as node:
        await node.offer(MPS)
        given = await node.admit(pod("mps"), {GPU: 1})
        with pytest.raises(RuntimeCallError, match=PIPE) as error:
            await node.create(pod("mps"), given)

        assert error.value.code is StatusCode.FAILED_PRECONDITION
        assert not node.world.runtime.core.records.containers
        assert not node.world.controller.node.containers
        assert not (node.host.root / "run").exists()
        (node.host.root / PIPE[1:]).mkdir(parents=True)
        _, config = await node.create(pod("mps"), given)
        assert visible(config) == b"GPU-a"


# -------------------------------------------------------------------- 12


async def test_12_a_class_of_ones_own(folder: Path) -> None:
    """One id for each node that exists; its container gets the node, no variable, and CPUs beside it, until it ends."""
    async with joined(folder, classes=(ALI,)) as node:
        node.host.plug("/dev/npu0", "0000:3b:00.0", numa_node=1)
        node.host.plug("/dev/npu1", "0000:af:00.0", numa_node=0)
        node.host.text("/dev/npu_manager")
        await node.offer(plan=PluginPlan(advertised=(Advertised(kind=ALI, resource=NPU),)))
        assert node.kubelet.manager.devices[NPU].numa_nodes == {"npu0": (1,), "npu1": (0,)}

        first, second = pod("first", "Guaranteed"), pod("second", "Guaranteed")
        given = {each.name: await node.admit(each, {NPU: 1}) for each in (first, second)}
        mine = first if given["first"][NPU].ids == ("npu0",) else second
        key, config = await node.create(mine, given[mine.name])
        assert nodes(config) == [("/dev/npu0", "rw")]
        assert not config.envs
        assert place(config)[0] <= NODE_1[0]
        assert place(config)[1] == "1"
        assert len(node.world.owned()) == 2

        await node.world.kubelet.start(key)
        await node.world.booked()
        assert node.world.controller.devices.cards_given() == {"ali-npu": 1}
        await node.complete(mine, key)
        await node.world.until(lambda: not node.world.owned())
        assert node.world.controller.devices.cards_given() == {"ali-npu": 0}
        assert (await node.run(pod("third", "Guaranteed"), {NPU: 1}))[0] == ("npu0",)


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
