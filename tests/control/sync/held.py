"""A runtime that answers when a test wants it to, however slow the machine is."""

import asyncio
from collections.abc import Sequence

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.emulator.core import Core
from tests.control.world import World


def hold(monkeypatch: pytest.MonkeyPatch, method: str) -> asyncio.Event:
    """Let calls of *method* wait in the runtime, beside their latency, until the event is set that this returns."""
    go_on, delay = asyncio.Event(), Core.delay

    async def held(core: Core, name: str) -> None:
        await delay(core, name)
        if name == method:
            await go_on.wait()

    monkeypatch.setattr(Core, "delay", held)
    return go_on


def unanswered(world: World, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the lists that criproxy wants because a create was cut wait for the event that this returns."""
    client, go_on = world.controller.context.runtime, asyncio.Event()
    list_containers = client.list_containers

    async def lists(sandbox_id: str = "") -> Sequence[api.Container]:
        if (task := asyncio.current_task()) and task.get_name().startswith("ask for "):
            await go_on.wait()
        return await list_containers(sandbox_id)

    monkeypatch.setattr(client, "list_containers", lists)
    return go_on
