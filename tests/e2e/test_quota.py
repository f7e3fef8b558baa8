"""Quotas of owners on real containers: what the kernel and containerd have, and what comes back when."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from lab.containerd.containerd import PrivateContainerd
from tests.e2e.scene import ALL, OWNED, Scene, guaranteed, owner, proxied

LIFT = f"policy: static\nreservedCpus: [{min(ALL)}]\ncpuQuota: lift\n"
PERIOD_US = 100_000


@pytest.fixture
async def lifting(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Scene]:
    """The static policy with ``cpuQuota: lift``, with the lowest CPU reserved."""
    async with asyncio.timeout(60), proxied(tmp_path, containerd, LIFT) as scene:
        yield scene


async def quotas(scene: Scene, container_id: str) -> tuple[int, int]:
    """The quota in the container's cgroup, and the one in containerd's record of it."""
    info = (await scene.direct.container_status(container_id, verbose=True)).info["info"]
    return await scene.quota_us(container_id), json.loads(info)["runtimeSpec"]["linux"]["resources"]["cpu"]["quota"]


async def test_an_owner_has_no_quota_until_it_shares(lifting: Scene) -> None:
    """The kubelet's resizes bring a quota each time, which is in force while the container shares."""
    _, owned = await lifting.run(owner("owner"))
    half = api.LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, cpu_period=PERIOD_US)
    whole = api.LinuxContainerResources(cpu_shares=1024, cpu_quota=100_000, cpu_period=PERIOD_US)
    assert (await lifting.cpus(owned), await quotas(lifting, owned)) == (OWNED, (-1, -1))

    await lifting.kubelet.update(owned, whole)
    assert (await lifting.cpus(owned), await quotas(lifting, owned)) == (OWNED, (-1, -1))

    await lifting.kubelet.update(owned, half)
    assert (await lifting.cpus(owned), await quotas(lifting, owned)) == (ALL, (50_000, 50_000))

    await lifting.kubelet.update(owned, whole)
    await lifting.moves_to(owned, OWNED)
    assert await quotas(lifting, owned) == (-1, -1)


@pytest.mark.parametrize("lost", [False, True], ids=["known", "database-lost"])
async def test_the_quota_comes_back_though_criproxy_was_killed(lifting: Scene, *, lost: bool) -> None:
    """By what the state says or, where that is lost, the container itself."""
    _, owned = await lifting.run(guaranteed("owner", 1000))
    await lifting.end()
    if lost:
        for file in (lifting.serve.directory / "state").glob("criproxy.db*"):
            file.unlink()

    answer = await lifting.release()

    assert (answer["source"], [row["outcome"] for row in answer["containers"]]) == ("store", ["released"])
    assert (await lifting.cpus(owned), await quotas(lifting, owned)) == (ALL, (100_000, 100_000))


async def test_a_lost_database_loses_no_limit(lifting: Scene) -> None:
    """The owner goes on without quota, and has its own when it shares: containerd 1.6 tells nothing of it."""
    _, owned = await lifting.run(guaranteed("owner", 1000))
    await lifting.end()
    for file in (lifting.serve.directory / "state").glob("criproxy.db*"):
        file.unlink()
    await lifting.begin()

    _, late = await lifting.run(guaranteed("late", 500))

    assert (await quotas(lifting, owned), await quotas(lifting, late)) == ((-1, -1), (50_000, 50_000))
    await lifting.kubelet.update(owned, api.LinuxContainerResources(cpu_shares=512))
    assert (await lifting.cpus(owned), await quotas(lifting, owned)) == (ALL, (100_000, 100_000))
