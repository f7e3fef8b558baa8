"""Looks at a node at work: what a picture has, and that a history that is not there yet holds none up."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.live import LiveNode
from criproxy.api.live import commands as commands_of
from criproxy.api.page import source
from criproxy.api.page.source import LATE, Looks
from criproxy.api.page.stream import Picture
from criproxy.api.usage import UsageCommands
from tests.node.world import World, owner, sharer

LIMIT_S = 60.0


def looks_of(world: World) -> Looks:
    """As the daemon makes them."""
    controller = world.controller
    commands = {**commands_of(LiveNode(controller))} | UsageCommands(controller).commands()
    return Looks(controller, commands, "worker-1")


def rows(of: Picture) -> list[Any]:
    """The containers."""
    return [json.loads(row) for row in of.rows.values()]


def kinds(of: Picture) -> set[str]:
    """The kinds of the new events."""
    return {json.loads(event)["kind"] for event in of.new_events}


def problem(of: Picture) -> str:
    """Why events are missing."""
    return str(json.loads(of.parts["history"])["problem"])


async def test_a_picture_has_the_answers_of_commands(tmp_path: Path) -> None:
    """Containers as in `status`, and since when and why they are there; the machine, cards, and events."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        await world.run(sharer("web"))
        await world.run(owner("trader", 2))
        looks = looks_of(world)

        seen = await looks.take(None)
        status = json.loads(await looks.commands["status"]({"check": True}))

    told = {row["pod"]: row for row in rows(seen)}
    assert told.keys() == {"web", "trader"}
    for row in status["containers"]:
        assert {key: told[row["pod"]][key] for key in row} == row
    assert told["trader"]["why"].startswith("gets exclusive CPUs 1-2")
    assert told["web"]["since"] <= told["trader"]["since"]
    assert seen.parts.keys() == {"status", "machine", "memory", "history", "devices", "usage"}
    assert json.loads(seen.parts["machine"])["host"] == "worker-1"
    assert "containers" not in json.loads(seen.parts["status"])
    assert {"granted", "created", "started"} <= kinds(seen)
    assert problem(seen) == ""


async def test_events_come_once(tmp_path: Path) -> None:
    """The next picture has only those that are new, and all that a page begins with."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        await world.run(sharer("web"))
        looks = looks_of(world)
        first = await looks.take(None)
        await world.run(owner("trader"))
        second = await looks.take(first)
        third = await looks.take(second)

    assert first.new_events
    assert not {*first.new_events} & {*second.new_events}
    assert all(event in second.events for event in (*first.events, *second.new_events))
    assert (third.new_events, len(third.rows)) == ([], 2)


async def test_why_is_known_of_containers_that_are_older_than_the_newest_events(tmp_path: Path) -> None:
    """It is read once from the history of the containers."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        await world.run(owner("trader", 2))
        looks = looks_of(world)
        _, looks._last_event = await world.controller.context.state.history_since(0, ())

        seen = await looks.take(Picture())

    assert seen.new_events == []
    assert rows(seen)[0]["why"].startswith("gets exclusive CPUs 1-2")


async def test_a_release_that_ended_is_no_reason(tmp_path: Path) -> None:
    """Containers that are back in their places are there for the reasons of the policy, here and in `explain`."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        await world.run(sharer("web"))
        key = await world.run(owner("trader", 2))
        looks = looks_of(world)
        before = await looks.take(None)
        await world.controller.policy_switch.release("somebody asked")
        during = await looks.take(before)
        await world.controller.policy_switch.undo()
        await world.rested()
        after = await looks.take(during)
        explained = json.loads(await looks.commands["explain"]({"container": key}))
        events = json.loads(await looks.commands["events"]({}))["events"]

    why = [{row["pod"]: row["why"] for row in rows(seen)} for seen in (before, during, after)]
    assert why[2] == {**why[0], "web": "shares CPUs 0,3: its pod is Burstable"}
    assert "because the node was released" in why[1]["trader"]
    assert explained["why"][0].startswith("default/trader/main gets exclusive CPUs 1-2")
    assert explained["why"][-1].startswith("then CPUs 0-3 → 1-2, because the release ended")
    assert "the release has ended: 2 of 2 containers move" in str(events)
    assert "policy changed" not in str(events)


async def test_the_history_holds_no_picture_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it cannot be read in time, the picture says so, and the next look comes by itself and has the events."""
    monkeypatch.setattr(source, "AGAIN_S", 0.0)
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        await world.run(owner("trader"))
        looks = looks_of(world)
        with monkeypatch.context() as hurried:
            hurried.setattr(source, "PATIENCE_S", 0.0)
            late = await looks.take(None)
        await looks.changed()  # although nothing has
        monkeypatch.setattr(source, "PATIENCE_S", LIMIT_S)
        seen = await looks.take(late)

    assert (problem(late), late.new_events, len(late.rows)) == (LATE, [], 1)
    assert problem(seen) == ""
    assert "granted" in kinds(seen)
