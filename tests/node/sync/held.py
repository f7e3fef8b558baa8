"""Lists that are answered when a test wants it, however slow the machine is; `world.Slow` holds up other calls."""

import asyncio
from collections.abc import Sequence

import pytest

from criproxy.cri import api_pb2 as api
from tests.node.world import World


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
