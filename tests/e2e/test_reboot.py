"""A reboot on real containerd: sandboxes that are not ready, containers that exited, and every pod to run again."""

import asyncio
import shutil
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from lab.containerd.containerd import PrivateContainerd
from tests.e2e.scene import ALL, OWNED, Scene, owner, sharer
from tests.rebooted import BootingKubelet

PODS = [owner("owner"), *(sharer(f"sharer-{number}") for number in range(3))]


@pytest.mark.parametrize("criproxy", ["stays", "has lost its store"])
async def test_a_reboot(scene: Scene, containerd: PrivateContainerd, criproxy: str, tmp_path: Path) -> None:
    """The owner gets the CPU that it had, alone, at once; nothing of the time before holds it."""
    before = BootingKubelet(scene.client, PODS, cgroups=containerd.cgroups)
    (former,) = (await before.bring_up())["owner"]
    assert await scene.cpus(former) == OWNED

    if criproxy != "stays":
        await scene.end()
    await asyncio.to_thread(containerd.reboot)
    assert {one.state for one in await scene.direct.list_containers()} == {api.CONTAINER_EXITED}
    if criproxy == "has lost its store":
        for file in (scene.serve.directory / "state").iterdir():
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    await (scene.asked() if criproxy == "stays" else scene.begin())
    after = BootingKubelet(scene.client, PODS, cgroups=containerd.cgroups)
    ids = await after.bring_up()

    repeated = " cannot start on " if containerd.is_front else None  # there, no update comes before a start
    assert [said for said in after.refused if repeated is None or repeated not in said] == []
    (owned,) = ids.pop("owner")
    if containerd.is_front:  # created before the runtime asked criproxy again, it gets its place afterwards
        await scene.moves_to(owned, OWNED)
    assert await scene.cpus(owned) == OWNED
    for (shared,) in ids.values():
        await scene.moves_to(shared, ALL - OWNED)
