"""Nodes with cards, and with vGPUs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.devices.quotas import Stopped, node_with_vgpus, pod
from tests.node.devices.test_hints import Node, node_at
from tests.node.world import World


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    """What the runtime was told to stop."""
    return Stopped().install(monkeypatch)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """Two NUMA nodes with cards."""
    made = node_at(tmp_path)
    async with made.world:
        yield made


@pytest.fixture
async def world(tmp_path: Path, stopped: Stopped) -> AsyncIterator[World]:
    """A node with vGPUs."""
    async with node_with_vgpus(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        yield world


@pytest.fixture
async def key(world: World) -> str:
    """A container with a vGPU, `default/greedy/main`, that runs."""
    return await world.run(pod("greedy"))
