"""Who only shares and came while criproxy failed is placed once it answers again, and is told of until then."""

import asyncio
from dataclasses import replace
from pathlib import Path

from criproxy.control.report import summary
from criproxy.control.settings import Promote
from criproxy.model.grant import Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.policy.static import StaticOptions, StaticPolicy
from tests.control.world import FAST, World, sharer

LIMIT_S = 20.0
QUICK = replace(FAST, promote_pause_s=0.02, promote_quiet_s=0.0)


class Failing(StaticPolicy):
    """A policy with a mistake, for as long as it is told so, that keeps the last CPU for nobody."""

    def __init__(self) -> None:
        super().__init__(StaticOptions.model_validate({"reservedCpus": "0"}))
        self.fails = True

    def place(self, node: Node, container: Container) -> Layout:
        """Fail; afterwards place everybody on CPU 1."""
        if self.fails:
            raise TypeError("planted")
        layout = super().place(node, container)
        grant = replace(layout.grants[container.key], cpus=frozenset({1}))
        return replace(layout, grants={**layout.grants, container.key: grant})


def unplaced(world: World) -> list[str]:
    """What status says of those who are not placed."""
    notices = summary(world.controller.situation())["notices"]
    return [each["text"] for each in notices if "without having been placed" in each["text"]]


async def late(world: World) -> str:
    """A container that comes while the policy fails, and is known."""
    container_id = await world.run(sharer("late"))
    await world.until(lambda: container_id in world.controller.node.grants)
    return container_id


async def test_who_shares_is_placed_once_the_policy_answers(tmp_path: Path) -> None:
    """By itself; nothing is wrong then."""
    policy = Failing()
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=QUICK, policy=policy) as world:
        container_id = await late(world)
        (text,) = unplaced(world)
        assert text.startswith("default/late/main shares since 20")
        assert text.endswith("without having been placed: criproxy failed while it was created")
        policy.fails = False
        await world.poll(lambda: world.cpus(container_id) == "1")
        assert unplaced(world) == []


async def test_it_is_told_of_over_a_restart(tmp_path: Path) -> None:
    """And as long as it lives, where nobody is promoted."""
    policy = Failing()
    settings = replace(QUICK, promote=Promote.OFF)
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=settings, policy=policy) as world:
        await late(world)
        policy.fails = False
        await world.stop_criproxy()
        await world.start_criproxy()
        await world.poll(lambda: world.controller.ready)
        assert len(unplaced(world)) == 1
