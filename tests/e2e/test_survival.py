"""What a real node survives: restarts of containerd, a lost store, resizes."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from lab.containerd.containerd import PrivateContainerd
from tests.e2e.scene import ALL, OWNED, Scene, owner, sharer


async def test_a_restart_of_containerd(scene: Scene, containerd: PrivateContainerd) -> None:
    """An owner exits while it is away, a sharer is removed right after: the next owner finds all in order.

    What the owner had is kept until its sandbox is stopped.
    """
    _, stays = await scene.run(sharer("stays"))
    sandbox_id, removed = await scene.run(sharer("removed"))
    ending, exits = await scene.run(owner("exits"))
    assert await scene.cpus(stays) == ALL - OWNED
    pid = await scene.pid(exits)

    def restart() -> None:
        os.kill(containerd.pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        containerd.restart(signal.SIGKILL)

    await asyncio.to_thread(restart)
    # As the kubelet does it: containerd 2.1 waits for itself if a plugin connects while a pod goes with its containers.
    await scene.direct.call(
        "RemoveContainer", api.RemoveContainerRequest(container_id=removed), api.RemoveContainerResponse
    )
    await scene.direct.call(
        "RemovePodSandbox", api.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), api.RemovePodSandboxResponse
    )

    await scene.kubelet.stop_sandbox(ending)
    await scene.moves_to(stays, ALL)
    _, again = await scene.run(owner("again"))
    assert (await scene.cpus(again), await scene.cpus(stays)) == (OWNED, ALL - OWNED)


@pytest.mark.parametrize("damage", ["gone", "corrupt"])
async def test_a_lost_store_is_rebuilt(scene: Scene, damage: str) -> None:
    """Owners own what they did, sharers share it, nothing moves; what was started meanwhile is taken in, too."""
    _, first = await scene.run(sharer("first"))
    sandbox_id, owned = await scene.run(owner("owner"))
    _, second = await scene.run(sharer("second"))
    written = {key: await written_at(scene, key) for key in (first, owned, second)}
    await scene.end()
    state = scene.serve.directory / "state"
    if damage == "gone":
        shutil.rmtree(state)
    else:
        (state / "criproxy.db").write_bytes(b"no database" * 1000)
        for journal in state.glob("criproxy.db-*"):
            journal.unlink()

    await scene.begin()
    _, late = await scene.run(sharer("late"))

    assert (await scene.cpus(owned), await scene.cpus(first)) == (OWNED, ALL - OWNED)
    assert (await scene.cpus(second), await scene.cpus(late)) == (ALL - OWNED, ALL - OWNED)
    assert {key: await written_at(scene, key) for key in written} == written
    await scene.kubelet.remove_pod(sandbox_id)
    await scene.moves_to(first, ALL)


async def written_at(scene: Scene, container_id: str) -> int:
    """When the cpuset of a container was last written, in ns: cgroup files keep the time."""
    return _written_at(await scene.pid(container_id))


def _written_at(pid: int) -> int:
    v1, unified = Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup")
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuset" in controllers.split(",") or (not controllers and not v1.is_dir()):
            root = v1 if v1.is_dir() else unified
            return (root / path.lstrip("/") / "cpuset.cpus").stat().st_mtime_ns
    raise AssertionError(f"process {pid} has no cpuset")
