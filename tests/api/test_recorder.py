"""Recordings: what a node was asked, handed out without secrets and within bounds."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api import recorder as recording
from criproxy.api.recorder import Recorder
from criproxy.errors import CriproxyError, Refused, UsageError
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.placement.engine import step
from criproxy.placement.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerStarted,
    PodCreated,
    PodGone,
)
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.records.trace import Traced, parse_header, parse_line
from tests.node.world import FAST, STATIC, World, owner, sharer

NAMED = replace(FAST, policy_name="static")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A node that can be recorded."""
    async with World(tmp_path, settings=NAMED) as world:
        yield world


@pytest.fixture
def recorder(world: World) -> Recorder:
    """Records its events."""
    return Recorder(world.controller)


async def told(recorder: Recorder, name: str, taken: int) -> list[Traced]:
    """The events that a recording has told by now, beyond those that were taken."""
    answer = await recorder.command({"recording": name, "taken": taken})
    return [parse_line(line) for line in answer["lines"]]


def replayed(topology: Topology, events: Iterable[Traced]) -> Node:
    """An empty machine after the events of a trace."""
    node = Node(topology)
    for each in events:
        try:
            node = step(node, each.event, STATIC).node
        except Refused:
            continue
    return node


async def test_a_trace_asks_again_what_was_asked(world: World, recorder: Recorder) -> None:
    """Who is there when it begins and who comes later come again to the same CPUs; refusals are told."""
    await world.run(sharer("before"))
    await world.rested()
    begun = await recorder.command({})
    await world.run(owner("later", 2))
    with pytest.raises(Exception, match="asks for 9 exclusive CPUs"):
        await world.run(owner("greedy", 9))
    await world.rested()
    header, *population = begun["lines"]
    events = [parse_line(line) for line in population]
    events += await told(recorder, begun["recording"], len(begun["lines"]))
    node = world.controller.node

    again = replayed(parse_header(header).topology, events)

    assert parse_header(header).policy == "static"
    assert {each.at_s for each in events[: len(population)]} == {0.0}
    refused = [each for each in events if each.refused]
    creates = [each.event for each in refused if isinstance(each.event, ContainerCreating)]
    assert len(refused) == len(creates)
    assert {(create.container.pod_name, create.container.key) for create in creates} == {
        ("greedy", creates[0].container.key)
    }
    assert all("asks for 9 exclusive CPUs" in each.refused for each in refused)
    assert {c.title: again.grants[key].cpus for key, c in again.containers.items() if key in again.grants} == {
        c.title: node.grants[key].cpus for key, c in node.containers.items() if key in node.grants
    }


@pytest.mark.parametrize("state", [ContainerState.CREATING, ContainerState.CREATED, ContainerState.RUNNING])
async def test_what_comes_while_it_begins_is_told_once(world: World, recorder: Recorder, state: ContainerState) -> None:
    """Whether it begins as soon as the node shows a pod that is created or started, or later, the pod came once."""
    running = asyncio.create_task(world.run(sharer("p")))
    await world.until(lambda: state in {c.state for c in world.controller.node.containers.values()})
    begun = await recorder.command({})
    await running
    await world.booked()
    await world.controller.context.state.flush()
    events = [parse_line(line) for line in begun["lines"][1:]]
    events += await told(recorder, begun["recording"], len(begun["lines"]))

    kinds = [type(each.event) for each in events if not isinstance(each.event, PodCreated)]
    assert kinds == [ContainerCreating, ContainerCreated, ContainerStarted]


async def test_secrets_are_hidden(world: World, recorder: Recorder) -> None:
    """Values of labels and annotations whose keys look secret are not told."""
    begun = await recorder.command({})
    pod = replace(
        sharer("p"),
        labels={"app": "web", "api-token": "s3cret"},
        annotations={"password.criproxy.io/pod": "s3cret", "memory-type.criproxy.io/pod": "dram"},
    )
    await world.run(pod)
    await world.rested()
    answer = await recorder.command({"recording": begun["recording"], "taken": 1})

    created = next(e.event for e in map(parse_line, answer["lines"]) if isinstance(e.event, PodCreated))
    assert created.pod.labels["app"] == "web"
    assert created.pod.annotations["memory-type.criproxy.io/pod"] == "dram"
    assert "s3cret" not in "".join(answer["lines"])


async def test_lines_are_kept_until_they_have_arrived(world: World, recorder: Recorder) -> None:
    """An answer that got lost is given again; what was taken is forgotten."""
    begun = await recorder.command({})
    name = begun["recording"]
    await world.run(sharer("p"))
    await world.rested()
    first, again = await told(recorder, name, 1), await told(recorder, name, 1)
    await world.kubelet.remove_pod(next(iter(world.controller.node.pods)))
    later = list[Traced]()
    while PodGone not in map(type, (each.event for each in later)):
        later += await told(recorder, name, 1 + len(first) + len(later))

    assert first == again
    kinds = [type(each.event) for each in first]
    # The first create may tell of its pod once more, if it is quicker than the end of RunPodSandbox.
    assert set(kinds[: kinds.index(ContainerCreating)]) == {PodCreated}
    assert not any(each in first for each in later)


async def test_an_answer_waits_for_something_to_tell(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with the next event, or empty after a while."""
    monkeypatch.setattr(recording, "WAIT_S", 0.05)
    name = (await recorder.command({}))["recording"]
    nothing = await told(recorder, name, 1)
    monkeypatch.setattr(recording, "WAIT_S", 60.0)
    waiting = asyncio.create_task(told(recorder, name, 1))
    await asyncio.sleep(0)
    await world.run(sharer("p"))
    something = await waiting

    assert not nothing
    assert isinstance(something[0].event, PodCreated)


async def test_too_much_that_nobody_takes_ends_it(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told until then can be fetched, and then the reason."""
    begun = await recorder.command({})
    monkeypatch.setattr(recording, "BUFFER_BYTES", len(begun["lines"][0]) + 600)
    for number in range(4):
        await world.run(sharer(f"p{number}"))
    await world.rested()
    answer = await recorder.command({"recording": begun["recording"], "taken": 1})
    last = await recorder.command({"recording": begun["recording"], "taken": 1 + len(answer["lines"])})

    assert answer["lines"]
    assert not answer["ended"]
    assert (last["lines"], last["ended"]) == ([], "more than 0 MiB of events were waiting to be fetched")


async def test_who_has_gone_is_forgotten(world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that nobody fetches ends, and nothing is listened to any more; so does one that is ended."""
    name = (await recorder.command({}))["recording"]
    ended = (await recorder.command({}))["recording"]
    await recorder.command({"recording": ended, "end": True})
    listening = world.controller.context.state._outbox.listener
    monkeypatch.setattr(recording, "PATIENCE_S", -1.0)
    await world.run(sharer("p"))
    await world.rested()
    after = world.controller.context.state._outbox.listener
    with pytest.raises(UsageError, match="there is no recording"):
        await recorder.command({"recording": name})

    assert listening is not None
    assert after is None


async def test_what_cannot_be_recorded(tmp_path: Path) -> None:
    """More than a few at once, a daemon that hears of nothing, and arguments of another kind."""
    async with World(tmp_path, settings=NAMED) as world:
        recorder = Recorder(world.controller)
        names = [(await recorder.command({}))["recording"] for _ in range(recording.MAX_RECORDINGS)]
        with pytest.raises(CriproxyError, match="4 recordings are already in progress"):
            await recorder.command({})
        with pytest.raises(UsageError):
            await recorder.command({"recording": names[0], "taken": "all"})
    none = replace(FAST, policy_name="none")
    async with World(tmp_path, settings=none, policy=NonePolicy(Options())) as world:
        with pytest.raises(CriproxyError, match="with the policy none, this daemon sees no containers"):
            await Recorder(world.controller).command({})
