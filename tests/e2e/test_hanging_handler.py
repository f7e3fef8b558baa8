"""Criproxy as a plugin of a real containerd, with a handler that hangs."""

import asyncio
from pathlib import Path

from lab.containerd.containerd import PrivateContainerd
from tests.e2e.scene import ALL, OWNED, owner, proxied, sharer


async def test_a_handler_that_hangs(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Containers start soon, on CPUs that nobody owns; it is said, and they get their place afterwards."""
    policy, hanging = f'policy: static\nreservedCpus: "{min(ALL)}"\n', ("-m", "lab.chaos.launcher", "create-hangs")
    async with asyncio.timeout(60), proxied(tmp_path, containerd, policy, hanging) as scene:
        begun_s = asyncio.get_running_loop().time()
        _, owned = await scene.run(owner("owner"))
        assert asyncio.get_running_loop().time() - begun_s < 10
        assert await scene.cpus(owned) in (ALL, OWNED), "it may have been promoted already"
        said = " ".join((await scene.serve.notices()).values())
        assert "default/owner/c0" in said
        await scene.end()
        scene.serve._arguments[:3] = ["-m", "criproxy"]
        await scene.begin()
        await scene.moves_to(owned, OWNED)
        _, shared = await scene.run(sharer("shared"))
        assert await scene.cpus(shared) == ALL - OWNED


async def test_a_handler_that_hangs_while_an_owner_runs(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Who is created meanwhile starts beside it: its answer gave it none of the owner's CPUs."""
    policy, hanging = f'policy: static\nreservedCpus: "{min(ALL)}"\n', ["-m", "lab.chaos.launcher", "create-hangs"]
    async with asyncio.timeout(60), proxied(tmp_path, containerd, policy) as scene:
        _, owned = await scene.run(owner("owner"))
        await scene.end()
        scene.serve._arguments[:2] = hanging
        await scene.begin()

        _, shared = await scene.run(sharer("shared"))

        assert (await scene.cpus(shared), await scene.cpus(owned)) == (ALL - OWNED, OWNED)
