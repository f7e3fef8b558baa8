"""The long poll of the agent: what it costs, and that no change is missed."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from criproxy.api import agent as module
from criproxy.api.agent import AgentPolls
from criproxy.api.live import LiveNode
from criproxy.errors import UsageError
from criproxy.model.text.notices import Notice
from tests.asking import LIMIT_S
from tests.node.world import World, owner

PAUSE_S = 0.2


class Node:
    """A live node whose looks are counted, and can be held up: each asks what is beside the controller once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.looks, self.looking = 0, asyncio.Queue[None]()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.wrong: list[Notice] = []
        self.polls = AgentPolls(LiveNode(world.controller, beside=self._beside))

    async def _beside(self) -> Sequence[Notice]:
        self.looks += 1
        self.looking.put_nowait(None)
        await self.go_on.wait()
        return self.wrong

    async def ask(self, after: int = 0, wait_s: float = 0.0, **more: object) -> dict[str, Any]:
        """Return the answer to a poll."""
        answer = await self.polls.command({"after": after, "wait_s": wait_s, **more})
        return dict(json.loads(answer))

    def change(self, text: str) -> None:
        """Change what the next look finds, and say that there is something new."""
        self.wrong = [Notice("kubelet", text)]
        self.world.controller.context.state.notify()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Return one that may be looked at often."""
    monkeypatch.setattr(module, "SHORTEST_PAUSE_S", PAUSE_S)
    monkeypatch.setattr(module, "PAUSE_RATIO", 0.0)
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        await world.rested()
        yield Node(world)


async def test_nothing_is_done_while_nobody_asks(node: Node) -> None:
    """Not even after changes: only who asks is answered."""
    first = await node.ask()
    for number in range(5):
        node.change(f"change {number}")
        await asyncio.sleep(0)

    assert node.looks == 1
    assert (await node.ask(first["revision"], 30.0))["problems"] == ["change 4"]
    assert node.looks == 2


async def test_a_poll_without_a_change_ends_with_its_time(node: Node) -> None:
    """The last answer comes again, after one more look for what no event tells of."""
    first = await node.ask()
    second = await node.ask(first["revision"], PAUSE_S * 1.5)

    assert second["revision"] == first["revision"]
    assert node.looks == 2
    node.wrong = [Notice("kubelet", "the kubelet does not call")]
    third = await node.ask(first["revision"], PAUSE_S * 1.5)
    assert third["revision"] > first["revision"]
    assert third["ready"] == "the kubelet does not call"
    assert not third["kubelet"]["through"]


async def test_a_change_is_answered_at_once_and_many_together(node: Node) -> None:
    """However often the node changes, it is looked at once in a while, for all who ask together."""
    first = await node.ask()
    waiting = [asyncio.create_task(node.ask(first["revision"], 30.0)) for _ in range(20)]
    await asyncio.sleep(0)
    for number in range(100):
        node.change(f"change {number}")
        await asyncio.sleep(0)
    answers = await asyncio.gather(*waiting)

    assert {each["revision"] for each in answers} == {first["revision"] + 1}
    assert {each["problems"][0] for each in answers} == {"change 99"}
    assert node.looks == 2


async def test_a_change_that_changes_nothing_for_the_cluster_is_no_answer(node: Node) -> None:
    """Such as one that was undone: the poll goes on waiting."""
    first = await node.ask()
    polling = asyncio.create_task(node.ask(first["revision"], 30.0))
    await node.looking.get()
    await asyncio.sleep(PAUSE_S)
    node.world.controller.context.state.notify()
    await node.looking.get()
    assert not polling.done()
    node.change("something else")

    assert (await polling)["revision"] == first["revision"] + 1


async def test_a_change_during_a_look_is_not_missed(node: Node) -> None:
    """The next look follows, and finds it."""
    node.go_on.clear()
    polling = asyncio.create_task(node.ask())
    await node.looking.get()
    node.world.controller.context.state.notify()  # after what the look has read by now
    node.go_on.set()
    first = await polling
    node.wrong = [Notice("socket", "lost")]

    assert (await node.ask(first["revision"], 30.0))["problems"] == ["lost"]


async def test_a_client_that_goes_during_a_look_takes_nothing_from_others(node: Node) -> None:
    """Another one looks again."""
    node.go_on.clear()
    goes, stays = (asyncio.create_task(node.ask()) for _ in range(2))
    await node.looking.get()
    goes.cancel()
    await node.looking.get()
    node.go_on.set()

    assert (await stays)["known"]


async def test_a_container_changes_what_is_available(node: Node) -> None:
    """Its place is in the answer as soon as it is decided."""
    first = await node.ask()
    polling = asyncio.create_task(node.ask(first["revision"], 30.0))
    await node.world.run(owner("db", 2))
    second = await polling
    while second["containers"]["exclusive"] != 1:
        second = await node.ask(second["revision"], 30.0)

    before, after = (each["numa_nodes"][0]["cpus"]["available_milli"] for each in (first, second))
    assert after == before - 2000
    assert [each["name"] for each in second["pods"]] == ["db"]


async def test_what_the_agent_says_of_itself_is_no_change_for_it(node: Node) -> None:
    """Else two agents that say different things would wake each other up for ever."""
    first = answer = await node.ask()
    for text in ("no API server", "forbidden"):
        answer = await node.ask(first["revision"], PAUSE_S * 1.5, report={"problems": [text], "wrong": [text]})
        assert answer["revision"] == first["revision"]
    agent = node.world.controller.agent
    assert [(each.kind, each.wrong) for each in agent.notices()] == [("node-policy", True), ("agent", False)]
    assert "forbidden" not in json.dumps(answer)


async def test_an_agent_that_no_longer_asks_says_nothing(node: Node) -> None:
    """After a minute, `status` has none; texts are bounded."""
    now_s = 1000.0
    agent = node.world.controller.agent
    agent.clock = lambda: now_s
    assert agent.to_json() is None
    await node.ask(report={"version": "1.0", "problems": ["x" * 9000] * 900})
    found = agent.to_json()
    assert found is not None
    assert (found["version"], len(found["problems"])) == ("1.0", 20)
    assert len(found["problems"][0]) < 600
    now_s += 61.0
    assert (agent.to_json(), list(agent.notices())) == (None, [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"after": True}, "after: must be a revision, not True"),
        ({"wait_s": -1}, "wait_s: must be between 0 and 30 seconds, not -1"),
        ({"wait_s": float("nan")}, "wait_s: must be between 0 and 30 seconds, not nan"),
        ({"report": "x"}, "report: must be an object, not 'x'"),
        ({"report": {"version": 1}}, "report: version must be a text, and problems and wrong lists of texts"),
        ({"report": {"wrong": [1]}}, "report: version must be a text, and problems and wrong lists of texts"),
    ],
)
async def test_a_wrong_request(node: Node, arguments: dict[str, object], sentence: str) -> None:
    """The client hears what would be right, and nothing else happens."""
    with pytest.raises(UsageError, match=sentence):
        await node.polls.command(arguments)
    assert node.looks == 0
