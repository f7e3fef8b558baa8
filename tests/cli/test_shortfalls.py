"""What `status`, its check and `explain` say of containers that have less than they should have."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.node.bypass import BypassMode
from criproxy.node.settings import Promote
from tests.asking import LIMIT_S, NAMED, answering
from tests.cli.queries.test_explain import explain
from tests.cli.queries.test_status import run
from tests.node.calls.test_update import size
from tests.node.test_bypassed_calls import Placing
from tests.node.world import World, owner

STAYS = replace(NAMED, promote=Promote.OFF)


def joined(output: str) -> str:
    """What was printed, whatever the width."""
    return " ".join(output.split())


async def test_a_refused_resize_is_listed_with_its_sizes(tmp_path: Path) -> None:
    """Among what was refused; by the daemon, and by its state where none answers."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        growing = await world.run(owner("growing"))
        for _ in range(3):
            with pytest.raises(RuntimeCallError):
                await world.kubelet.update(growing, size(4000))
        async with answering(world, tmp_path):
            shown, checked = await run(tmp_path), await run(tmp_path, "--check")
        await world.stop_criproxy()
        stored = await run(tmp_path, "--check")
        await world.start_criproxy()

    should = (
        "default/growing/main should have 4 CPUs and 1 GiB, but has 1 CPU and 1 GiB: its resize has been refused since"
    )
    assert "REFUSED 3 times, last " in shown.output
    assert should in joined(shown.output)
    assert checked.exit_code == 1
    assert should in checked.output
    assert should in stored.output


async def test_who_should_own_cpus_and_shares_is_named(tmp_path: Path) -> None:
    """With the exit status 1, and in `explain` with the cause."""
    async with asyncio.timeout(LIMIT_S), Placing(tmp_path, STAYS) as world, answering(world, tmp_path):
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        late = await world.run(owner("late", 2))
        world.bypass.set(BypassMode.OFF, "mended")
        await world.poll(lambda: world.controller.ready)
        checked, told = await run(tmp_path, "--check"), await explain(tmp_path, late)

    assert checked.exit_code == 1
    assert checked.output.startswith("default/late/main should have 2 exclusive CPUs, but has had shared CPUs since 20")
    assert "It should have 2 exclusive CPUs, but has had shared CPUs since 20" in told.output
    assert "it was created during a bypass" in joined(told.output)
    assert "chosen by" not in told.output
