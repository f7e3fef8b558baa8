"""Containers that were created and not started when their sandbox ended, as after a reboot: they never start."""

import shutil
from pathlib import Path

import pytest

from lab.kubelet.kubelet import PodSpec
from tests.node.world import World, owner, sharer


async def created(node: World, pod: PodSpec, *, started: bool = False, ready: bool = False) -> str:
    """A container of *pod*; its sandbox has ended beside criproxy unless it is *ready*."""
    sandbox_id = await node.kubelet.run_sandbox(pod)
    container_id = await node.kubelet.create(pod, sandbox_id, pod.containers[0])
    if started:
        await node.kubelet.start(container_id)
        await node.rested()
    sandbox = node.runtime.core.records.sandboxes[sandbox_id]
    sandbox.ready, sandbox.listed = ready, None
    return container_id


async def test_it_gives_up_its_place(tmp_path: Path) -> None:
    """With the next comparison; who shares may run there."""
    async with World(tmp_path) as node:
        shared = await node.run(sharer("shared"))
        await created(node, owner("lost"))
        assert node.owned() == {1}

        node.controller.runtime_lost()

        await node.poll(lambda: not node.owned())
        await node.poll(lambda: node.cpus(shared) == "0-3")


@pytest.mark.parametrize(
    ("started", "ready"), [pytest.param(True, False, id="runs"), pytest.param(False, True, id="sandbox-is-ready")]
)
async def test_others_keep_theirs(tmp_path: Path, started: bool, ready: bool) -> None:
    """Who runs though the sandbox has ended, and who waits for the start in one that has not."""
    async with World(tmp_path) as node:
        await created(node, owner("stays"), started=started, ready=ready)
        await created(node, owner("lost"))
        assert node.owned() == {1, 2}

        node.controller.runtime_lost()

        await node.poll(lambda: len(node.owned()) == 1)
        assert node.owned() == {1}


@pytest.mark.parametrize("store", ["kept", "lost"])
async def test_a_restart_of_criproxy(tmp_path: Path, store: str) -> None:
    """It holds no place soon after, whether it was remembered or is found in the runtime's list.

    Soon: as long as a start may be under way from before the restart, it is in doubt.
    """
    async with World(tmp_path) as node:
        await created(node, owner("lost"))
        await node.stop_criproxy()
        if store == "lost":
            for file in (tmp_path / "state").iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()

        await node.start_criproxy()
        await node.poll(lambda: node.controller.resync.is_ready)

        await node.poll(lambda: not node.owned())
        assert node.cpus(await node.run(owner("next", cpus=3))) == "1-3"
