"""vGPUs on a node: a container sees its card, criproxy keeps its quota, and nobody else gets its vGPU."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, Quota, Vgpu, annotations_of
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.devices.holdings import quota_of
from criproxy.devices.plugin.enforcement import HAMI, EnforcementBuilder, enforced_by, with_enforcement
from criproxy.errors import StatusCode
from lab.kubelet.kubelet import MiniKubelet, PodSpec
from tests.allocations import Allocated
from tests.devices.fixture import ALI
from tests.node.devices.test_guard import envs
from tests.node.devices.test_hints import GPU, SIZES, Node, node_at
from tests.node.devices.test_hints import RULES as HINTED
from tests.node.devices.test_joined import visible
from tests.node.world import refusal

RESOURCE = "criproxy.io/gpu-8g"
OTHER = "criproxy.io/gpu-4g"
NPU = replace(ALI, resources=(*ALI.resources, "criproxy.io/npu-8g"))
RULES = DeviceRules(classes=(replace(NVIDIA, resources=(*NVIDIA.resources, RESOURCE, OTHER)), NPU))

PROFILE = Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=25)


def allocated(vgpu: str, *enforce: Enforcement) -> Response:
    """What our Allocate answers for a vGPU, on a host that has every file."""
    part = Vgpu(id=vgpu, card=vgpu.partition("/")[0], profile="gpu-8g", memory_mib=8192, cores_percent=25)
    found = enforced_by(
        replace(PROFILE, enforce=enforce or ("watch",)), part, EnforcementBuilder(resource=RESOURCE), lambda _: True
    )
    response = joined(Response(), RESOURCE, [vgpu])
    response = replace(response, annotations={**response.annotations, **annotations_of(part)})
    return with_enforcement(response, found)


def pod_with(vgpu: str, name: str, *enforce: Enforcement) -> PodSpec:
    """A pod whose container has the annotations of our Allocate for a vGPU."""
    return PodSpec(name, (replace(SIZES["Burstable"], annotations=allocated(vgpu, *enforce).annotations),))


async def create(node: Node, *enforce: Enforcement, **own: bytes) -> api.ContainerConfig:
    """Create a container with a vGPU, whose pod sets *own* switches, as the kubelet does; what the runtime got."""
    pod, response = pod_with("GPU-b/gpu-8g/0", "pod", *enforce), allocated("GPU-b/gpu-8g/0", *enforce)

    def change(request: api.CreateContainerRequest) -> None:
        ours = [(name, value.encode()) for name, value in response.envs.items()]
        for name, value in (*ours, *own.items()):
            request.config.envs.add(key=name, value=value)
        for mount in response.mounts:
            paths = {"container_path": mount.container_path, "host_path": mount.host_path}
            request.config.mounts.add(**paths, readonly=mount.read_only)
        request.config.mounts.add(container_path="/etc/ld.so.preload", host_path="/dev/null")

    return (await node.world.create_as(pod, change))[1]


def make_files(root: Path) -> None:
    """HAMi-core and its folders on the host."""
    for name in (HAMI.library, HAMI.preload):
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / name[1:]).write_text("")
    for name in (f"{HAMI.containers}/GPU-b_gpu-8g_0", HAMI.lock):
        (root / name[1:]).mkdir(parents=True)


async def test_9_a_container_held_by_hami_core(tmp_path: Path) -> None:
    """The runtime gets the library's limits and mounts, and neither the pod's switches nor its mount over them.

    Those are logged with their names, but without values.
    """
    make_files(tmp_path)
    node = node_at(tmp_path, RULES)
    async with node.world:
        own = {"CUDA_DISABLE_CONTROL": b"true", "CUDA_DEVICE_SM_LIMIT": b"100", "CUDA_OVERSUBSCRIBE": b"true"}
        config = await create(node, "hami-core", **own)

        found = envs(config)
        assert found["NVIDIA_VISIBLE_DEVICES"] == b"GPU-b"
        assert found["CUDA_DEVICE_MEMORY_LIMIT_0"] == b"8192m"
        assert [env.value for env in config.envs if env.key == "CUDA_DEVICE_SM_LIMIT"] == [b"25"]
        assert "CUDA_DISABLE_CONTROL" not in found
        assert [(each.container_path, each.host_path, each.readonly) for each in config.mounts] == [
            ("/usr/local/vgpu", f"{HAMI.containers}/GPU-b_gpu-8g_0", False),
            ("/usr/local/vgpu/libvgpu.so", HAMI.library, True),
            ("/tmp/vgpulock", HAMI.lock, False),
            ("/etc/ld.so.preload", HAMI.preload, True),
        ]
        (why,) = (keys["why"] for event, keys in node.world.log.lines if event == "devices")
        limits = "CUDA_DEVICE_SM_LIMIT, CUDA_OVERSUBSCRIBE, mount /etc/ld.so.preload"
        assert str(why).endswith(f"nvidia: it could have changed the limits of its vGPU: criproxy removed {limits}")
        assert node.world.counters.devices["nvidia", "stripped"] == 2


async def test_10_a_container_held_by_the_driver(tmp_path: Path) -> None:
    """The runtime gets the driver's limit, once, and not what the pod sets in its place."""
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    node = node_at(tmp_path, RULES)
    own = {"NVIDIA_GPU_MEMORY_REQUEST": b"1", "NVIDIA_GPU_MEMORY_LIMIT": b"99999"}
    async with node.world:
        config = await create(node, "nvidia-memory-limit", **own)

        found = [(env.key, env.value) for env in config.envs if env.key.startswith("NVIDIA_GPU_MEMORY")]
        assert sorted(found) == [("NVIDIA_GPU_MEMORY_LIMIT", b"8192"), ("NVIDIA_GPU_MEMORY_REQUEST", b"8192")]
        assert envs(config)["NVIDIA_VISIBLE_DEVICES"] == b"GPU-b"


async def test_9_the_library_has_gone(tmp_path: Path) -> None:
    """Nothing is created where a source of a mount is missing, and the message names it."""
    make_files(tmp_path)
    (tmp_path / HAMI.preload[1:]).unlink()
    node = node_at(tmp_path, RULES)
    async with node.world:
        caught = await refusal(create(node, "hami-core"))
        assert caught.code is StatusCode.FAILED_PRECONDITION
        assert "/usr/local/vgpu/ld.so.preload, which enforces the quota of its vGPU" in caught.details
        assert not node.world.runtime.core.records.containers


def quota(node: Node, name: str, kind: str = "nvidia") -> Quota | None:
    """What criproxy keeps of the quota of a pod's container."""
    found = next(each for each in node.world.controller.node.containers.values() if each.pod_name == name)
    return quota_of(node.world.controller.devices.holdings.of(found) or {}, kind)


async def test_a_vgpu_has_one_container(tmp_path: Path) -> None:
    """A create with the vGPU of another pod's container is refused with that container's name, until it has ended."""
    node = node_at(tmp_path, RULES)
    async with node.world:
        key, _ = await node.create(pod_with("GPU-b/gpu-8g/0", "one"))
        await node.world.kubelet.start(key)
        caught = await refusal(node.create(pod_with("GPU-b/gpu-8g/0", "two")))
        assert caught.code is StatusCode.FAILED_PRECONDITION
        assert "still has its vGPU GPU-b/gpu-8g/0" in caught.details
        assert "/one/" in caught.details

        await node.world.kubelet.stop(key)
        _, config = await node.create(pod_with("GPU-b/gpu-8g/0", "three"))
        assert visible(config) == b"GPU-b"


@pytest.mark.parametrize(
    ("vgpu", "kind"),
    [
        pytest.param("npu0/gpu-8g/0", "ali-npu", id="nodes"),
        pytest.param("GPU-b/gpu-8g/0", "nvidia", id="uuid"),
        pytest.param("MIG-x/gpu-8g/0", "nvidia", id="mig"),
    ],
)
async def test_a_profile_that_is_gone(tmp_path: Path, vgpu: str, kind: str) -> None:
    """The kubelet repeats the old answer of Allocate: its vGPU stays the container's, with its quota."""
    node = node_at(tmp_path, DeviceRules(classes=(NVIDIA, ALI)))
    async with node.world:
        key, _ = await node.create(pod_with(vgpu, "one"))
        await node.world.kubelet.start(key)

        assert quota(node, "one", kind) == Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)
        await refusal(node.create(pod_with(vgpu, "two")), f"still has its vGPU {vgpu}")


async def test_a_runtime_that_does_not_answer_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Its former container may run still, so the log says once that this is not known."""
    node, vgpu = node_at(tmp_path, RULES), "GPU-b/gpu-8g/0"
    unknown = "the runtime does not report whether a container still has its vGPU"
    async with node.world:
        for name in ("one", "two", "three"):
            key, _ = await node.create(pod_with(vgpu, name))
            node.world.runtime.lose_status(key, "planted")
        lines = [keys for event, keys in node.world.log.lines if event == unknown]
    assert len(lines) == 1
    assert lines[0]["vgpu"] == vgpu
    assert "planted" in str(lines[0]["error"])


@pytest.mark.parametrize(
    ("first", "resource", "vgpu"),
    [
        pytest.param(allocated("GPU-b/gpu-8g/0"), OTHER, "GPU-a/gpu-4g/3", id="another-profile"),
        pytest.param(allocated("GPU-b/gpu-8g/0"), "criproxy.io/npu-8g", "npu0/npu-8g/1", id="another-class"),
        pytest.param(joined(Response(), RESOURCE, ["GPU-b/gpu-8g/0"]), OTHER, "GPU-b/gpu-4g/0", id="without-a-quota"),
    ],
)
async def test_a_container_has_one_vgpu(tmp_path: Path, first: Response, resource: str, vgpu: str) -> None:
    """A create with two is refused with both, since the annotations of a quota have room for one.

    Also where these are missing, as they are if the kubelet does not pass them on.
    """
    second = joined(Response(), resource, [vgpu])
    spec = replace(SIZES["Burstable"], annotations={**second.annotations, **first.annotations})
    node = node_at(tmp_path, RULES)
    async with node.world:
        caught = await refusal(node.create(PodSpec("two", (spec,))))
        assert caught.code is StatusCode.FAILED_PRECONDITION
        both = " and ".join(sorted(["GPU-b/gpu-8g/0", vgpu]))
        assert f"a container can have one vGPU, and this one was allocated {both}" in caught.details
        assert vgpu in caught.details
        assert not node.world.runtime.core.records.containers


@pytest.mark.parametrize("knows", ["nothing", "another card", "the vGPU", "no file"])
async def test_a_vgpu_that_only_annotations_claim(tmp_path: Path, knows: str) -> None:
    """A runtime may list labels of an image as annotations: without a state, the kubelet's checkpoint decides."""
    rules, pod = replace(RULES, kubelet=HINTED.kubelet), pod_with("GPU-b/gpu-8g/0", "forger")
    node = node_at(tmp_path, rules)
    async with node.world as running:
        given = {"another card": [(GPU, "GPU-a")], "the vGPU": [(RESOURCE, "GPU-b/gpu-8g/0")]}.get(knows, [])
        node.kubelet.entries = [
            Allocated(pod=pod.name, pod_uid=pod.uid, resource=resource, ids=(each,)) for resource, each in given
        ]
        await running.stop_criproxy()  # before: it would say what it finds while there is a file
        key, _ = await node.create(pod, direct=True)
        await MiniKubelet(running.direct).start(key)
        if knows == "no file":
            node.kubelet.checkpoint.unlink()
        rmtree(tmp_path / "state")
        await running.start_criproxy()
        await running.poll(lambda: running.controller.ready and key in running.controller.node.containers)

        believed = knows in ("the vGPU", "no file")
        assert (quota(node, "forger") is not None) is believed
        with suppress(RuntimeCallError) if believed else nullcontext():
            _, config = await node.create(pod_with("GPU-b/gpu-8g/0", "honest"))
            assert not believed
            assert visible(config) == b"GPU-b"
        assert ("a container claims devices that the kubelet has not allocated" in running.log.events()) is not believed
