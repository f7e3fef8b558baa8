"""A node with vGPUs for tests of quotas."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.devices.quotas import Stopped, node_with_vgpus
from tests.node.world import World


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    """What the runtime was told to stop."""
    return Stopped().install(monkeypatch)


@pytest.fixture
async def world(tmp_path: Path, stopped: Stopped) -> AsyncIterator[World]:
    """A node with vGPUs."""
    async with node_with_vgpus(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        yield world
