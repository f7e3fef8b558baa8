"""One container of which the runtime tells nothing, whatever it is asked: nobody else is held up by that."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri.runtime import if_reported
from criproxy.model.workload import ContainerState
from lab.kubelet.kubelet import MiniKubelet
from tests.node.world import FAST, NO_EVENTS, World, owner, said, sharer

LIMIT_S = 60.0
OFTEN = replace(FAST, exit_list_s=0.1, resync_timeout_s=LIMIT_S)


def untold(world: World) -> list[str]:
    """What ``status --check`` says of it."""
    return said(world, "does not report the state of")


async def test_its_end_and_that_of_others_are_seen(tmp_path: Path) -> None:
    """The list of the runtime is enough."""
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        broken, other = await world.run(owner("broken")), await world.at_rest(owner("other"))
        world.runtime.lose_status(broken)
        world.runtime.exit_container(broken)
        world.runtime.exit_container(other)

        await world.until(lambda: not world.owned())

        assert {one.state for one in world.controller.node.containers.values()} == {ContainerState.EXITED}
        assert not untold(world)


@pytest.mark.parametrize("ended", [True, False])
async def test_criproxy_begins_to_place_all_the_same(tmp_path: Path, *, ended: bool) -> None:
    """It is known from before, and has ended meanwhile or has not: others are created.

    The check says that nobody sees where it is as long as it is there.
    """
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        broken = await world.at_rest(owner("broken"))
        await world.stop_criproxy()
        world.runtime.lose_status(broken)
        if ended:
            world.runtime.exit_container(broken)
        await world.start_criproxy()

        await world.run(sharer("next"))

        assert world.owned() == (set() if ended else {1})
        if not ended:
            await world.poll(lambda: bool(untold(world)))
            (sentence,) = untold(world)
            assert sentence.endswith("default/broken/main: ContainerStatus: UNKNOWN: failed to get container info")
        await world.kubelet.remove_pod(world.controller.node.containers[broken].pod)
        await world.poll(lambda: broken not in world.controller.node.containers)
        assert not untold(world)


async def test_one_that_nobody_knows_is_taken_in_by_the_list(tmp_path: Path) -> None:
    """It is told to leave CPUs, and its answer is believed: an owner starts."""
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        await world.stop_criproxy()
        _, ids = await MiniKubelet(world.direct).run_pod(sharer("broken"))
        world.runtime.lose_status(ids["main"])
        await world.start_criproxy()

        owned = await world.run(owner("next"))

        assert world.cpus(owned) == "1"
        assert world.cpus(ids["main"]) == "0,2-3"
        assert untold(world)


async def test_one_whose_cgroup_can_be_read_is_no_trouble(tmp_path: Path) -> None:
    """It is seen there, whatever the runtime failed to tell once."""
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        fine = await world.run(owner("fine"))
        await world.poll(lambda: world.groups() == {fine})
        kernel = world.controller.context.cgroups
        world.runtime.lose_status(fine)
        assert await if_reported(kernel.ask(fine)) is None
        assert untold(world)

        world.controller.reconciler.enqueue([fine], read=True)

        await world.poll(lambda: not untold(world))


async def test_one_that_was_not_told_once_is_asked_again_with_the_next_comparison(tmp_path: Path) -> None:
    """Nobody else may ask for one that has not been started."""
    async with World(tmp_path, NO_EVENTS, OFTEN) as world:
        _, created = await world.created(owner("created"))
        await world.rested()
        world.runtime.lose_status(created)
        assert await if_reported(world.controller.context.cgroups.ask(created)) is None
        world.runtime.lose_status(created, "")
        assert untold(world)

        await world.controller.resync.again(thorough=False)

        await world.poll(lambda: not untold(world))
