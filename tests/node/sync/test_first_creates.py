"""What the first create after a start waits for."""

from pathlib import Path

from criproxy.node.controller import Controller
from lab.emulator.runtime import RuntimeOptions
from tests.node.world import NO_LOOKS, Slow, World, owner, sharer


async def test_not_for_the_sizes_in_force(tmp_path: Path) -> None:
    """A runtime that does not report the state of containers does not hold it up: where they are is on disk."""
    slow = Slow()
    async with World(tmp_path, RuntimeOptions(latency_s=slow), NO_LOOKS) as world:
        await world.run(owner("first"))
        await world.stop_criproxy()
        slow.hold("ContainerStatus")
        world.prepare = never_give_up
        await world.start_criproxy()

        await world.created(sharer("second"))

        slow.let_go("ContainerStatus")


def never_give_up(controller: Controller) -> None:
    """Let a question to the runtime take as long as the test."""
    controller.context.runtime._timeout_s = 600.0
