"""Containers that criproxy must not update, because an update could take their cards away."""

from dataclasses import replace
from pathlib import Path

from criproxy.placement.events import Found, Present
from tests.node.world import NO_EVENTS, NO_LOOKS, World, owner


async def with_card(world: World) -> str:
    """A container that owns a CPU and must not be updated."""
    card = await world.at_rest(owner("card", 1))
    known = world.controller.node.containers[card]
    await world.controller.context.state.apply(Found(containers=(Present(replace(known, stays=True)),)))
    assert world.controller.node.containers[card].stays
    return card


async def test_a_restart_reads_where_it_is_and_holds_up_no_start(tmp_path: Path) -> None:
    """Before, an update of it may have been in flight, so it may be anywhere: its cgroup says that it is not."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        card = await with_card(world)
        await world.restart()

        other = await world.run(owner("other", 1))

        assert (world.cpus(card), world.cpus(other)) == ("1", "2")
        await world.rested()
        assert not world.controller.context.in_flight.is_unread(card)
        assert world.counters.updates_sent == 0


async def test_a_start_that_was_cut_is_read_afterwards(tmp_path: Path) -> None:
    """The kubelet hears nothing of it; the runtime starts it, and others start on the CPUs that are not its own."""
    async with World(tmp_path, NO_EVENTS, replace(NO_LOOKS, unknown_pause_s=0.05)) as world:
        card = await with_card(world)
        flight = world.controller.context.in_flight
        flight.lose_start(world.controller.node, card, 0.0)
        world.controller.outcomes.ask(card)

        other = await world.run(owner("other", 1))

        assert (world.cpus(card), world.cpus(other)) == ("1", "2")
        assert not flight.is_starting(card)
