"""Criproxy fails in front of real containers: the disk, the policy. Cgroups say that owners stay alone."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from criproxy.cli.client import ask
from criproxy.model.cpuset import format_cpuset
from criproxy.node.bypass import FAILURES
from lab.containerd.containerd import PrivateContainerd
from tests.daemons import Serve
from tests.disks import fill, free, small_disk
from tests.e2e.scene import ALL, OWNED, Scene, owner, sharer

POLICY = """
from pathlib import Path

from criproxy.placement.policies import Entry
from criproxy.placement.policies.static import StaticOptions, StaticPolicy


class FragilePolicy(StaticPolicy):
    def place(self, node, container):
        if Path({flag!r}).exists():
            raise ZeroDivisionError("a mistake")
        return super().place(node, container)

    def release(self, node, left):
        if Path({flag!r}).exists():
            raise LookupError(left)
        return super().release(node, left)


ENTRY = Entry(StaticOptions, FragilePolicy)
"""


@asynccontextmanager
async def scene_of(
    directory: Path, containerd: PrivateContainerd, policy: str = "static", path: str = ""
) -> AsyncIterator[Scene]:
    """Criproxy with *policy*, and the lowest CPU reserved."""
    file = directory / "policy.yaml"
    file.write_text(f'policy: {policy}\nreservedCpus: "{min(ALL)}"\n')
    (directory / "runtime.sock").symlink_to(containerd.socket)
    async with (
        asyncio.timeout(120),
        Serve(directory, "--config", str(file), PYTHONPATH=path or os.environ.get("PYTHONPATH", "")) as serve,
    ):
        scene = Scene(serve, containerd)
        yield scene
        await scene.client.close()
        await scene.direct.close()


async def bypass(scene: Scene, state: str = "status") -> dict[str, Any]:
    """Ask the daemon about its bypass, or switch it."""
    answer: dict[str, Any] = await asyncio.to_thread(ask, str(scene.serve.control), "bypass", {"state": state})
    return answer


async def status_says(scene: Scene, beginning: str) -> None:
    """Wait for a status that systemd is told."""
    loop = asyncio.get_running_loop()
    assert scene.serve._notify is not None
    async with asyncio.timeout(60):
        while True:
            lines = (await loop.sock_recv(scene.serve._notify, 65_536)).decode().splitlines()
            if any(line.startswith(f"STATUS={beginning}") for line in lines):
                return


async def newcomers(scene: Scene) -> None:
    """Run as many pods as it takes; each shares."""
    for number in range(FAILURES + 1):
        sandbox_id, container_id = await scene.run(sharer(f"n{number}"))
        assert await scene.cpus(container_id) == ALL - OWNED
        if number:
            await scene.kubelet.remove_pod(sandbox_id)


async def test_a_full_disk_costs_no_owner_its_cpu(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Newcomers share, the bypass engages and says so; with space, an owner comes again, also after a restart."""
    with small_disk(tmp_path / "state") as disk:
        async with scene_of(tmp_path, containerd) as scene:
            sandbox_id, owned = await scene.run(owner("owner"))
            _, shared = await scene.run(sharer("shared"))
            fill(disk)

            await newcomers(scene)

            assert (await bypass(scene))["mode"] == "automatic"
            await status_says(scene, "BYPASS (automatic)")
            assert "state cannot be stored" in scene.serve.log.read_text()
            assert await scene.cpus(owned) == OWNED

            free(disk)
            async with asyncio.timeout(60):
                while "state is stored again" not in scene.serve.log.read_text():  # noqa: ASYNC110 (as people do)
                    await asyncio.sleep(0.1)
            await scene.kubelet.remove_pod(sandbox_id)
            await bypass(scene, "off")
            _, second = await scene.run(owner("second"))
            assert (await scene.cpus(second), await scene.cpus(shared)) == (OWNED, ALL - OWNED)
            assert await scene.serve.stop() == 0


async def test_a_policy_that_raises_costs_no_owner_its_cpu(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Newcomers share until another policy is in force; an owner that ends meanwhile gives its CPU back."""
    flag = tmp_path / "broken"
    place = tmp_path / "fragile"
    (info := place / "fragile-1.0.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fragile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[criproxy.policies]\nfragile = fragile:ENTRY\n")
    (place / "fragile.py").write_text(POLICY.format(flag=str(flag)))
    path = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])
    async with scene_of(tmp_path, containerd, "fragile", path) as scene:
        sandbox_id, owned = await scene.run(owner("owner"))
        flag.touch()
        await newcomers(scene)
        assert (await bypass(scene))["mode"] == "automatic"
        assert await scene.cpus(owned) == OWNED

        await scene.kubelet.remove_pod(sandbox_id)
        (tmp_path / "policy.yaml").write_text(f'policy: static\nreservedCpus: "{min(ALL)}"\n')
        async with asyncio.timeout(60):
            while (await bypass(scene))["bypass"]:  # noqa: ASYNC110 (as people do)
                await asyncio.sleep(0.1)
        _, second = await scene.run(owner("second"))

        assert await scene.cpus(second) == OWNED
        assert "a mistake" in scene.serve.log.read_text()


async def test_after_an_ordered_bypass_owners_are_alone_again(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Who came while every call passed is moved off owned CPUs before the next owner starts."""
    async with scene_of(tmp_path, containerd) as scene:
        await bypass(scene, "on")
        _, passed = await scene.run(sharer("passed"))
        assert await scene.cpus(passed) == ALL

        await bypass(scene, "off")
        _, owned = await scene.run(owner("owner"))

        assert (await scene.cpus(owned), await scene.cpus(passed)) == (OWNED, ALL - OWNED), format_cpuset(ALL)
