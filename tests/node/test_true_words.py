"""What is told of a node is told once it is so, and no longer than it is so."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.views.situation import Situation
from criproxy.cri import api_pb2 as api
from criproxy.model.workload import ContainerState
from tests.node.test_in_flight import group_of, left_running
from tests.node.world import FAST, World, owner, sharer, situation

LIMIT_S = 60.0


def kinds(situation: Situation) -> list[str]:
    """What is told of the whole node."""
    return [notice.kind for notice in situation.notices if notice.kind != "resync"]


async def create(world: World, name: str, cpuset: str) -> None:
    """A container for which the kubelet's CPU manager has chosen CPUs, or none has."""

    def chosen(request: api.CreateContainerRequest) -> None:
        request.config.linux.resources.cpuset_cpus = cpuset

    await world.create_as(sharer(name), chosen)


async def test_a_competing_manager_is_told_until_it_is_off(world: World) -> None:
    """With the static one on, each create has a cpuset; a create without one tells that it was switched off."""
    await create(world, "first", "2")
    assert kinds(situation(world.controller)) == ["competing-manager"]
    await create(world, "second", "0-3")
    assert kinds(situation(world.controller)) == ["competing-manager"]
    assert len([event for event in world.log.events() if "CPU manager" in event]) == 1

    await create(world, "third", "")
    assert kinds(situation(world.controller)) == []

    await create(world, "fourth", "2")
    assert kinds(situation(world.controller)) == ["competing-manager"]
    assert len([event for event in world.log.events() if "CPU manager" in event]) == 2


@pytest.mark.parametrize("ends", [True, False], ids=["its-end-takes-a-moment", "it-stays"])
async def test_a_lost_container_is_told_once_it_is_lost(tmp_path: Path, ends: bool) -> None:
    """The processes of a start that was cut take a moment to end: until then nobody is sent to restart the runtime."""
    settings = replace(FAST, drift_period_s=0.02, lost_after_s=60.0 if ends else 0.5)
    async with World(tmp_path, settings=settings) as world:
        late = await left_running(world, tmp_path, owner("late"))
        await world.poll(lambda: world.controller.context.in_flight.is_left(late))
        assert world.owned() == {1}
        if ends:  # there is time enough to look
            assert kinds(situation(world.controller)) == []
            assert not any("whose processes are still running" in event for event in world.log.events())
        else:
            await world.poll(lambda: kinds(situation(world.controller)) == ["left-running"])
            await world.poll(lambda: any("whose processes are still running" in event for event in world.log.events()))
        shutil.rmtree(group_of(tmp_path, late))
        gone = ContainerState.EXITED
        await world.until(lambda: world.controller.node.containers[late].state is gone)
        assert kinds(situation(world.controller)) == []
