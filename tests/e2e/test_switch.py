"""Criproxy between kubelet and runtime becomes a plugin of the runtime, and back, while containers run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from lab.containerd.containerd import PrivateContainerd
from tests.daemons import until
from tests.e2e.scene import ALL, Ran, Scene, guaranteed, owner, proxied, sharer

POLICY = f'policy: static\nreservedCpus: "{min(ALL)}"\n'


@asynccontextmanager
async def front(directory: Path, containerd: PrivateContainerd, *, nri: bool) -> AsyncIterator[Scene]:
    """Criproxy on the state of the one before, as a plugin or as a proxy."""
    containerd.is_front = nri
    (directory / "runtime.sock").unlink(missing_ok=True)
    async with proxied(directory, containerd, POLICY) as scene:
        yield scene
        await scene.serve.stop()


async def test_switching_moves_no_container(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """All have the CPUs that they had, whoever has placed them, and newcomers respect them."""
    assert containerd.is_front, "it takes plugins"
    ran: dict[str, Ran] = {}
    async with asyncio.timeout(120):
        async with front(tmp_path, containerd, nri=False) as scene:
            ran["owner"] = await scene.run(owner("owner"))
            ran["sharer"] = await scene.run(sharer("sharer"))
            places = {name: await scene.kernel_sets(one) for name, one in ran.items()}
            assert not places["owner"][0] & places["sharer"][0]
        for number, nri in enumerate((True, False, True)):
            async with front(tmp_path, containerd, nri=nri) as scene:
                assert {name: await scene.kernel_sets(one) for name, one in ran.items()} == places
                name = f"new{number}"
                ran[name] = await scene.run(guaranteed(name, 500))
                places[name] = await scene.kernel_sets(ran[name])
                assert places[name] == places["sharer"]
                for kept, one in ran.items():
                    assert await scene.kernel_sets(one) == places[kept], kept
                status, said = await scene.serve.command("status", "--check")
                assert (status, "All is well" in said) == (0, True), said


async def test_both_at_once(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Each says that there is the other; when the plugin has stopped, the next container ends it."""
    said = "has placed default/{}/c0, and both place the same containers"
    for name in ("plugin", "proxy"):
        (tmp_path / name).mkdir()
    async with asyncio.timeout(60), front(tmp_path / "proxy", containerd, nri=False) as proxy:
        async with front(tmp_path / "plugin", containerd, nri=True) as plugin:
            await proxy.run(sharer("both"))
            for scene in (plugin, proxy):
                await until(partial(tells, scene, said.format("both")))
        await proxy.run(sharer("one"))
        await until(lambda: isnt(tells(proxy, "another criproxy")))


async def tells(scene: Scene, text: str) -> bool:
    """Whether `status --check` fails, and says so."""
    status, said = await scene.serve.command("status", "--check")
    return bool(status) and text in " ".join(said.split())


async def isnt(told: Awaitable[bool]) -> bool:
    """Whether it is not so."""
    return not await told
