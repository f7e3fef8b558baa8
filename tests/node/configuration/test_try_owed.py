"""What containers lacked before a try of a configuration they lack after it, and get when there is room."""

import asyncio
import json

import pytest

from criproxy.api.rehearsal import Rehearsals
from criproxy.model.text.notices import Values
from tests.node.configuration.tried_node import LIMIT_S, MOVES, STATIC, Node, two
from tests.node.reconcile.test_promotion import wrong
from tests.node.sync.test_sizes_in_force import asked_for
from tests.node.world import owner, refusal

NONE = "policy: none\n"
ALL_SHARE = 'policy: static\nreservedCpus: "0"\nexclusiveFor: []\napply: all\n'


async def goes_back(node: Node) -> None:
    """The time of the try is over, and the former configuration is in force."""
    await node.ends()
    await node.world.rested()


async def ends(node: Node, container_id: str) -> None:
    """The pod of a container ends."""
    await node.world.kubelet.remove_pod(node.world.controller.node.containers[container_id].pod)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted-within"])
async def test_who_waited_for_exclusive_cpus_waits_again(node: Node, restarts: bool) -> None:
    """A second try, of a policy that owes nobody anything, neither ends the problem nor takes away the CPUs."""
    async with asyncio.timeout(LIMIT_S):
        first = await node.world.run(owner("first", 2))
        await node.tries(ALL_SHARE)
        second = await node.world.run(owner("second", 3))
        await goes_back(node)
        await node.world.poll(lambda: len(wrong(node.world)) == 1)
        before = wrong(node.world)
        assert "default/second/main should have 3 exclusive CPUs" in before[0]

        await node.tries(NONE)
        await node.world.until(lambda: node.world.controller.node.containers[second].missed is None)
        if restarts:
            await node.restart()
        await goes_back(node)

        await node.world.poll(lambda: wrong(node.world) == before)  # right after a restart the runtime is listed
        await ends(node, first)
        await node.at(second, "1-3")
        await node.world.poll(lambda: wrong(node.world) == [])


@pytest.mark.parametrize("text", [NONE, ALL_SHARE], ids=["none", "nobody-owns"])
async def test_a_refused_resize_that_a_try_accepts(node: Node, text: str) -> None:
    """The kubelet does not repeat it after the try: the container keeps its CPUs, and grows when there is room."""
    world = node.world
    async with asyncio.timeout(LIMIT_S):
        first, grown = await world.run(owner("first", 2)), await world.run(owner("grown", 1))
        await refusal(world.client.update_container_resources(grown, asked_for(2)), "asks for 2 exclusive CPUs")
        await node.tries(text)
        await world.client.update_container_resources(grown, asked_for(2))
        await goes_back(node)

        await node.at(grown, "3")
        await world.poll(lambda: len(wrong(world)) == 1)
        (sentence,) = wrong(world)
        assert "default/grown/main should have 2 CPUs and 1 GiB, but has had a place for only 1 CPU and" in sentence
        await ends(node, first)
        await world.poll(lambda: len(world.owned()) == 2)
        await world.poll(lambda: wrong(world) == [])


async def rehearsed(node: Node, text: str) -> Values:
    """The answer of ``criproxy reload --dry-run``."""
    arguments = {"text": text, "source": "/root/new.yaml"}
    answer: Values = json.loads(await Rehearsals(node.reload).command(arguments))
    return answer


async def test_the_way_back_can_be_rehearsed(node: Node) -> None:
    """While something is tried, `--dry-run` of the policy file says who would return to former CPUs."""
    first, web = await two(node)
    await node.tries(MOVES)
    await node.at(first, "2")

    moved = (await rehearsed(node, STATIC))["moved"]

    assert {row["pod"]: (row["from_cpus"], row["cpus"]) for row in moved} == {
        "first": ("2", "1"),
        "web": ("0-1,3", "0,2-3"),
    }
    await node.reload.command({})
    await node.at(first, "1")
    await node.at(web, "0,2-3")
