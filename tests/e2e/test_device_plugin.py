"""Acceptance scenarios of the device plugin on real containers: what runc is told, and what a process inside finds."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.host.machine import discover
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.deviceplugin.hosts import Host
from tests.deviceplugin.joined import GPU_A, SHARED_NODES, plug_gpus, replicas
from tests.deviceplugin.node import GPU
from tests.deviceplugin.program import NPU
from tests.e2e.device_nodes import WITHOUT_DRIVER, folders, numbers_of
from tests.e2e.plugged import Plugged, Seen, plugged
from tests.e2e.scene import MIB
from tests.e2e.test_devices import DENIED, inside

NODES = {
    "/dev/nvidia0": (195, 0),
    "/dev/nvidia1": (195, 1),
    "/dev/nvidiactl": (195, 255),
    "/dev/nvidia-modeset": (195, 254),
    "/dev/nvidia-uvm": (WITHOUT_DRIVER, 30),
    "/dev/nvidia-uvm-tools": (WITHOUT_DRIVER, 31),
    "/dev/npu0": (WITHOUT_DRIVER, 32),
    "/dev/npu1": (WITHOUT_DRIVER, 33),
}
NODE_0 = discover().cpus_of([0])
"""The CPUs next to all cards."""
pytestmark = pytest.mark.usefixtures("cards")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="s") as name:
        yield Path(name)


def pod(name: str, cpu_limit_milli: int = 0) -> PodSpec:
    """A pod with one container, ``main``: Guaranteed if it has a limit."""
    sizes = ContainerSpec("main", IMAGE, cpu_limit_milli=cpu_limit_milli, memory_limit_bytes=64 * MIB)
    return PodSpec(name, (sizes,))


def seeing(*paths: str, env: tuple[str, ...] = (), mounts: tuple[tuple[str, str], ...] = ()) -> Seen:
    """What a container has to which these nodes, variables and mounts were given."""
    numbers = {path: numbers_of(path) for path in paths}
    return Seen(
        env=env,
        nodes=frozenset((path, *found) for path, found in numbers.items()),
        rules=frozenset(numbers.values()),
        mounts=mounts,
        process_env=env,
        opened=frozenset(paths),
    )


async def is_denied(node: Plugged, container_id: str, path: str) -> bool:
    """Whether the kernel denies a card to a container even if that makes the node itself."""
    await inside(node.scene, container_id, "/bin/busybox", "mknod", path, "c", *map(str, numbers_of(path)))
    return (await node.opens(container_id))[path] == DENIED


async def assert_is_kept(node: Plugged, spec: PodSpec, wanted: dict[str, int], running: str, expected: Seen) -> str:
    """Whatever is restarted, the container has the same; the id of the last one."""
    assert await node.sees(running) == expected
    for attempt, how in enumerate((None, signal.SIGTERM, signal.SIGKILL), 1):
        if how is not None:
            await node.scene.restart(how)
            assert await node.sees(running) == expected
        await node.end(running)
        given = await node.admit(spec, wanted, running=True)
        running = await node.run(spec, given, attempt=attempt)
        assert await node.sees(running) == expected
    return running


MPS_ROOT = Path("/run/nvidia/mps")
PIPE = MPS_ROOT / "nvidia.com/gpu/pipe"
SHM = MPS_ROOT / "shm"
MPS = f"""\
version: v1
flags: {{mpsRoot: {MPS_ROOT}}}
sharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: 4}}]}}}}
"""
NO_GPU = ("NVIDIA_VISIBLE_DEVICES=void",)
OF_GPU_A = ("CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe", "NVIDIA_VISIBLE_DEVICES=GPU-a")
MOUNTS = ((str(SHM), "/dev/shm"), (str(PIPE), "/mps/nvidia.com/gpu/pipe"))
GPU_NODES = [path for path in NODES if "nvidia" in path]


@contextmanager
def mps_daemon() -> Iterator[None]:
    """Have the folders of an MPS daemon, each with a file."""
    with folders(PIPE, SHM):
        for path in (PIPE, SHM):
            (path / "daemon").write_text(path.name)
        try:
            yield
        finally:
            for path in (PIPE, SHM):
                (path / "daemon").unlink()


def plug_gpu_a(host: Host) -> None:
    """Add the GPU next to NUMA node 0."""
    plug_gpus(host, GPU_A)


async def test_four_parts_with_mps(folder: Path, containerd: PrivateContainerd) -> None:
    """A client has its GPU, the daemon's pipe and shared memory; another pod has none of it, whatever node it makes."""
    with mps_daemon():
        async with plugged(folder, containerd, "nvidia", plug_gpu_a, GPU_NODES, MPS) as node:
            await node.kubelet.until(lambda: node.kubelet.healthy(GPU) == replicas("GPU-a", each=4))
            client, stranger = pod("client"), pod("stranger")
            given = await node.admit(client, {GPU: 1})
            kubelets = api.Mount(container_path="/dev/shm", host_path=str(folder))
            running = await node.run(client, given, kubelets)
            without = await node.run(stranger, {})

            expected = seeing("/dev/nvidia0", *SHARED_NODES, env=OF_GPU_A, mounts=MOUNTS)
            cpus, mems = await node.scene.sets(running)
            assert (cpus <= NODE_0, mems) == (True, frozenset({0}))
            files = [f"{inside_path}/daemon" for _, inside_path in MOUNTS]
            assert await inside(node.scene, running, "cat", *files) == "shmpipe"
            await assert_is_kept(node, client, {GPU: 1}, running, expected)
            assert await node.sees(without) == seeing(env=NO_GPU)
            await node.until_held("nvidia", 0, by={"client"})
            assert await is_denied(node, without, "/dev/nvidia0")


NPU_NODES = [path for path in NODES if "npu" in path]


def plug_npus(host: Host) -> None:
    """Add two NPUs next to NUMA node 0."""
    for path, address in zip(NPU_NODES, ("0000:3b:00.0", "0000:af:00.0"), strict=True):
        host.plug(path, address, numa_node=0)


async def test_a_class_of_ones_own(folder: Path, containerd: PrivateContainerd) -> None:
    """A container has the node of its card, no variable, and CPUs beside it; a pod that completes frees both."""
    async with plugged(folder, containerd, "ali-npu", plug_npus, NPU_NODES) as node:
        await node.kubelet.until(lambda: node.kubelet.healthy(NPU) == {"npu0", "npu1"})
        assert node.kubelet.manager.devices[NPU].numa_nodes == {"npu0": (0,), "npu1": (0,)}
        owner, other, stranger = pod("owner", 1000), pod("other"), pod("stranger")

        given = await node.admit(owner, {NPU: 1})
        running = await node.run(owner, given)
        (mine,) = given[NPU].ids
        (others,) = {"npu0", "npu1"} - {mine}
        second = await node.run(other, await node.admit(other, {NPU: 1}))
        without = await node.run(stranger, {})

        cpus, mems = await node.scene.sets(running)
        assert (len(cpus), cpus <= NODE_0, mems) == (1, True, frozenset({0}))
        assert (await node.scene.cpus(without)).isdisjoint(cpus)
        last = await assert_is_kept(node, owner, {NPU: 1}, running, seeing(f"/dev/{mine}"))
        assert await node.sees(second) == seeing(f"/dev/{others}")
        assert await node.sees(without) == seeing()
        assert await is_denied(node, without, f"/dev/{mine}")
        assert await is_denied(node, second, f"/dev/{mine}")

        await node.until_held("ali-npu", int(mine[-1]), by={"owner"})
        await node.complete(owner, last)
        await node.until_held("ali-npu", int(mine[-1]), by=set())
        third = pod("third", 1000)
        given = await node.admit(third, {NPU: 1})
        assert given[NPU].ids == (mine,)
        assert await node.sees(await node.run(third, given)) == seeing(f"/dev/{mine}")
