"""Clients of MPS on a node: the daemon's directory has to be there before anything is created."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.evidence.device_request import Mount
from criproxy.errors import StatusCode
from tests.node.devices.test_hints import GPU, Node, node_at
from tests.node.devices.test_joined import allocated, visible
from tests.node.world import FAST

PIPE = "/run/nvidia/mps/nvidia.com/gpu/pipe"
MOUNTS = (Mount("/mps/nvidia.com/gpu/pipe", PIPE), Mount("/dev/shm", "/run/nvidia/mps/shm"))
KUBELETS = Mount("/dev/shm", "/pods/shm")


async def create(node: Node, *ids: str, mounts: tuple[Mount, ...] = MOUNTS, name: str = "mps") -> api.ContainerConfig:
    """Create a container as the kubelet does after an Allocate with MPS; without ids, nothing says that it was ours."""
    pod = allocated(name, GPU, *ids)
    if not ids:
        pod = replace(pod, containers=(replace(pod.containers[0], annotations={}),))

    def change(request: api.CreateContainerRequest) -> None:
        request.config.envs.add(key="CUDA_MPS_PIPE_DIRECTORY", value=b"/mps/nvidia.com/gpu/pipe")
        for mount in mounts:
            request.config.mounts.add(container_path=mount.container_path, host_path=mount.host_path)

    return (await node.world.create_as(pod, change))[1]


def mounts_of(config: api.ContainerConfig) -> list[Mount]:
    """The mounts that the runtime was told."""
    return [Mount(mount.container_path, mount.host_path) for mount in config.mounts]


async def test_8_a_client_of_mps(tmp_path: Path) -> None:
    """With the daemon's directory there, the create goes on, with the daemon's shared memory alone."""
    (tmp_path / PIPE[1:]).mkdir(parents=True)
    node = node_at(tmp_path)
    async with node.world:
        config = await create(node, "GPU-a::1", mounts=(*MOUNTS, KUBELETS))

        assert visible(config) == b"GPU-a"
        assert mounts_of(config) == list(MOUNTS)
        assert {env.key for env in config.envs} >= {"CUDA_MPS_PIPE_DIRECTORY"}


@pytest.mark.parametrize("file", [False, True], ids=["nothing-there", "a-file-there"])
async def test_8_no_daemon(tmp_path: Path, *, file: bool) -> None:
    """Without the directory the create fails with its name, and nothing is created, nor kept for it."""
    if file:
        (tmp_path / PIPE[1:]).parent.mkdir(parents=True)
        (tmp_path / PIPE[1:]).touch()
    node = node_at(tmp_path)
    async with node.world:
        with pytest.raises(RuntimeCallError, match=f"the directory {PIPE} does not exist") as error:
            await create(node, "GPU-a::1")

        assert error.value.code is StatusCode.FAILED_PRECONDITION
        assert not node.world.runtime.core.records.containers
        assert not (tmp_path / PIPE[1:]).is_dir()
        assert not node.world.controller.node.containers
        assert [refusal.container for refusal in node.world.controller.context.state.refusals()[0]] == [
            "default/mps/main"
        ]

        (tmp_path / PIPE[1:]).unlink(missing_ok=True)
        (tmp_path / PIPE[1:]).mkdir(parents=True)
        assert mounts_of(await create(node, "GPU-a::1", name="again")) == list(MOUNTS)


async def test_mps_of_another_plugin(node: Node) -> None:
    """What our plugin has not written is passed on as it came."""
    config = await create(node, mounts=(*MOUNTS, KUBELETS))

    assert mounts_of(config) == [*MOUNTS, KUBELETS]


async def test_a_directory_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the host that does not come back ends the create with the directory's name, and holds up nobody."""
    node = node_at(tmp_path, limits=replace(FAST.device_limits, scan_s=0.5))
    read_end, write_end = os.pipe()
    monkeypatch.setattr(Path, "is_dir", lambda self: bool(PIPE not in str(self) or os.read(read_end, 1)))
    async with node.world:
        with pytest.raises(RuntimeCallError, match=f"{PIPE} has not answered") as error:
            await create(node, "GPU-a::1")

        assert error.value.code is StatusCode.FAILED_PRECONDITION
        assert not node.world.runtime.core.records.containers
        assert PIPE in (node.world.controller.devices.problem or "")
        os.write(write_end, b"x")
    os.close(write_end)
    os.close(read_end)
