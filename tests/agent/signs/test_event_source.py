"""From what happens on a node to Events in an API server: a controller, a control socket, the agent's parts."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import EVENTS, ApiClient
from criproxy.agent.node_view import NodeView
from criproxy.agent.signs.event_source import EventSource
from criproxy.agent.signs.events import EventWriter
from criproxy.agent.signs.wanted import WELL
from criproxy.agent.troubles import Troubles
from criproxy.api.agent import AgentPolls
from criproxy.api.live import LiveNode, commands
from criproxy.cri.runtime import RuntimeCallError
from criproxy.node.bypass import BypassMode
from lab.apiserver.server import ApiServer
from tests.agent.parts import running, until
from tests.agent.signs.test_events import QUICK
from tests.agent.signs.world import NAME
from tests.asking import serving
from tests.node.test_bypassed_calls import Placing
from tests.node.world import RecordingLog, owner

HOUR_S = 3600.0


class Asked(Changes):
    """The commands that a daemon has answered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    async def until(self, name: str, times: int) -> None:
        """Return when a command was answered so often."""
        await until(self, lambda: self.names.count(name) >= times)


class Told:
    """What the agent of a node tells."""

    def __init__(self, server: ApiServer, source: EventSource, asked: Asked) -> None:
        self.server, self.source, self.asked = server, source, asked

    @property
    def events(self) -> list[dict[str, Any]]:
        """All Events."""
        return self.server.objects.all(EVENTS)

    async def until(self, *reasons: str) -> dict[str, Any]:
        """Return the Event with the last of these reasons, when there are all."""
        await self.server.until(lambda: {each["reason"] for each in self.events} == {*reasons})
        return next(each for each in self.events if each["reason"] == reasons[-1])


@asynccontextmanager
async def agent(
    world: Placing, directory: Path, server: ApiServer, client: ApiClient, gap_s: float = 0.0
) -> AsyncIterator[Told]:
    """The parts of an agent that tell Events, from the start on."""
    live, asked = LiveNode(world.controller, bypass=world.bypass.to_json), Asked()
    handlers = {**commands(live), "agent": AgentPolls(live).command}

    def counted(name: str) -> Any:  # noqa: ANN401
        async def command(arguments: Any) -> Any:  # noqa: ANN401
            answer = await handlers[name](arguments)
            asked.names.append(name)
            asked.notify()
            return answer

        return command

    view = NodeView(str(directory / "control.sock"), NAME, Troubles(RecordingLog()))
    writer = EventWriter(client, NAME, Troubles(RecordingLog()), QUICK)
    source = EventSource(view, writer, gap_s=gap_s)
    parts = running(view.run(), source.run(), writer.run())
    async with serving(directory, {name: counted(name) for name in handlers}), parts:
        await asked.until("events", 1)
        yield Told(server, source, asked)


@pytest.fixture
async def told(tmp_path: Path, apiserver: ApiServer, api_client: ApiClient) -> AsyncIterator[tuple[Placing, Told]]:
    """A node of four CPUs, and what its agent tells."""
    async with Placing(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        async with agent(world, tmp_path, apiserver, api_client) as found:
            yield world, found


async def test_a_refused_container(told: tuple[Placing, Told]) -> None:
    """The Event is about the pod with its UID, and says what would help, without the name of another tenant's pod."""
    world, found = told
    await world.run(replace(owner("secret", 2), namespace="other"))
    big = owner("big", 3)

    with pytest.raises(RuntimeCallError):
        await world.run(big)
    event = await found.until("PlacementRefused")

    uids = {pod.name: pod.uid for pod in world.controller.node.pods.values()}
    assert event["involvedObject"]["uid"] == uids["big"]
    assert (event["involvedObject"]["name"], event["metadata"]["namespace"]) == ("big", "default")
    assert event["message"].startswith("container main: ")
    assert event["message"].endswith("it would fit without 1 container of other namespaces")
    assert "secret" not in event["message"]


async def test_a_bypass_and_who_ran_without_a_place(told: tuple[Placing, Told]) -> None:
    """Both ends of the bypass are told of the Node, and the pod learns from when to when."""
    world, found = told
    world.bypass.set(BypassMode.AUTOMATIC, "for the test")
    event = await found.until("BypassOn")
    assert event["message"] == "the bypass is on (automatic), so containers are not placed: for the test"
    _, key = await world.created(owner("late", 1))
    await world.kubelet.start(key)

    world.bypass.set(BypassMode.OFF, "mended")
    event = await found.until("BypassOn", "BypassOff", "RanUnpinned")
    assert event["involvedObject"]["name"] == "late"
    assert "it ran without a place of its own, on shared CPUs, from 2" in event["message"]


async def test_what_was_before_the_agent_is_not_told(
    tmp_path: Path, apiserver: ApiServer, api_client: ApiClient
) -> None:
    """An agent that is restarted does not repeat the history of the node."""
    async with Placing(tmp_path) as world:
        with pytest.raises(RuntimeCallError):
            await world.run(owner("big", 9))
        async with agent(world, tmp_path, apiserver, api_client) as found:
            found.source.tell(WELL)
            await found.until("CriproxyReady")
        assert [each["reason"] for each in found.events] == ["CriproxyReady"]


async def test_nothing_is_asked_while_nothing_changes(told: tuple[Placing, Told]) -> None:
    """The history is read only after a change of the view, and not for each poll."""
    world, found = told
    await world.run(owner("one", 1))
    await world.until(lambda: bool(world.owned()))
    await found.asked.until("events", 2)
    before = found.asked.names.count("events")
    await asyncio.sleep(0.2)
    assert found.asked.names.count("events") == before


async def test_what_is_old_is_not_told(told: tuple[Placing, Told]) -> None:
    """After hours without the daemon's answers, an agent tells of the last hour only."""
    world, found = told
    found.source.clock = lambda: time.time() + 2 * HOUR_S
    with pytest.raises(RuntimeCallError):
        await world.run(owner("big", 9))
    await found.asked.until("events", 2)
    found.source.tell(WELL)
    await found.until("CriproxyReady")
    assert [each["reason"] for each in found.events] == ["CriproxyReady"]


async def test_the_history_of_a_busy_node_is_read_rarely(
    tmp_path: Path, apiserver: ApiServer, api_client: ApiClient
) -> None:
    """What changes between two questions is told by the second one; the state of the node is told at once."""
    async with Placing(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        async with agent(world, tmp_path, apiserver, api_client, gap_s=3600.0) as found:
            with pytest.raises(RuntimeCallError):
                await world.run(owner("big", 9))
            await found.asked.until("agent", 2)
            world.bypass.set(BypassMode.AUTOMATIC, "for the test")
            await found.until("BypassOn")
            assert found.asked.names.count("events") == 1
            found.source.gap_s = 0.0
            found.source.view.notify()
            await found.until("BypassOn", "PlacementRefused")
            assert found.asked.names.count("events") == 2
