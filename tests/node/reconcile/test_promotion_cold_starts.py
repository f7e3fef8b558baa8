"""Cold starts end when their time is over, restarts of criproxy included."""

import asyncio
from pathlib import Path

import pytest

from criproxy.placement.events import ColdStartEnded, kind_of
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.world import GIB, World


def starting_cold(duration: str) -> PodSpec:
    """A pod that says how long its start takes."""
    spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=GIB)
    return PodSpec("web", (spec,), annotations={"cold-start.criproxy.io/pod": f"duration: {duration}"})


async def test_a_cold_start_ends(tmp_path: Path) -> None:
    """The container is warm once it has run for so long, and not before."""
    loop = asyncio.get_running_loop()
    async with World(tmp_path) as world:
        begun_s = loop.time()
        container_id = await world.run(starting_cold("200ms"))

        await world.until(lambda: world.controller.node.containers[container_id].warm)
        assert loop.time() - begun_s >= 0.2
        assert world.counters.decisions[kind_of(ColdStartEnded(container_id))] == 1


@pytest.mark.parametrize("ran_s", [0, 3600])
async def test_a_restart_does_not_begin_anew(world: World, ran_s: int) -> None:
    """What the container has run for counts, whoever was there to see it."""
    container_id = await world.run(starting_cold("1h"))
    world.runtime.core.records.containers[container_id].started_ns -= ran_s * 10**9

    await world.restart()
    late = await world.kubelet.run_pod(
        PodSpec("late", starting_cold("50ms").containers, annotations={"cold-start.criproxy.io": "50ms"})
    )

    await world.until(lambda: world.controller.node.containers[late[1]["main"]].warm)
    if ran_s:
        await world.until(lambda: world.controller.node.containers[container_id].warm)
    assert world.controller.node.containers[container_id].warm == bool(ran_s)
