"""The log has one line per decision, and nothing for what decides nothing."""

from pathlib import Path
from typing import Any

from criproxy.model.workload import SHORT_ID
from tests.node.world import GIB, World, owner, sharer


def lines(world: World) -> list[tuple[str, dict[str, Any]]]:
    """What was logged, without how long it took."""
    return [
        (event, {key: value for key, value in keys.items() if key != "decision_ms"}) for event, keys in world.log.lines
    ]


async def test_a_life_is_told_in_two_lines(world: World) -> None:
    """Who came, what it asked for, what it got and why; then that it gave its place back. Nothing twice."""
    shared = await world.at_rest(sharer("shared"))
    world.log.lines.clear()
    sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 2))
    reservation = world.controller.node.containers[ids["main"]].reservation
    await world.booked()
    await world.kubelet.remove_pod(sandbox_id)
    await world.poll(lambda: len(world.log.lines) == 2)

    placed, given_back = lines(world)

    assert placed == (
        "container placed",
        {
            "container": "default/owner/main",
            "sandbox": sandbox_id,
            "reservation": reservation,
            "qos": "Guaranteed",
            "cpu_milli": 2000,
            "cpu_limit_milli": 2000,
            "memory_limit_bytes": GIB,
            "cpus": "1-2",
            "mems": "0",
            "exclusive": "1-2",
            "moved": 1,
            "moves": (f"default/shared/main ({shared[:SHORT_ID]}): CPUs 0-3 → 0,3",),
            "reasons": placed[1]["reasons"],
        },
    )
    assert "default/owner/main gets exclusive CPUs 1-2" in str(placed[1]["reasons"])
    assert given_back == (
        "place released",
        {
            "container": "default/owner/main",
            "id": ids["main"],
            "exclusive": "1-2",
            "moved": 1,
            "moves": (f"default/shared/main ({shared[:SHORT_ID]}): CPUs 0,3 → 0-3",),
        },
    )


async def test_a_release_and_its_end_tell_who_moves(tmp_path: Path) -> None:
    """Each container with the id that crictl has, from where and to where; and that no policy has changed."""
    async with World(tmp_path) as world:
        shared = await world.run(sharer("shared"))
        owning = await world.at_rest(owner("owner", 2))
        world.log.lines.clear()
        await world.controller.policy_switch.release("somebody asked")
        await world.rested()
        await world.controller.policy_switch.undo()
        await world.rested()
        await world.booked()
        found = {event: keys for event, keys in lines(world) if "moves" in keys}

    assert found.keys() == {"node released", "release ended"}
    names = f"default/owner/main ({owning[:SHORT_ID]})", f"default/shared/main ({shared[:SHORT_ID]})"
    assert set(found["node released"]["moves"]) == {f"{names[0]}: CPUs 1-2 → 0-3", f"{names[1]}: CPUs 0,3 → 0-3"}
    assert set(found["release ended"]["moves"]) == {f"{names[0]}: CPUs 0-3 → 1-2", f"{names[1]}: CPUs 0-3 → 0,3"}
