"""A node whose configurations are tried."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.node.configuration import try_out
from tests.node.configuration.tried_node import Node, static_node, two


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """One with the static policy."""
    monkeypatch.setattr(try_out, "SHORTEST_TRY_S", 0.01)
    made = static_node(tmp_path)
    async with made.world:
        await made.begun()
        yield made
        failures = made.world.controller.context.failures
        assert failures.counts["watcher"] == failures.counts["background"] == 0


@pytest.fixture
async def first(node: Node) -> str:
    """An owner on CPU 1, beside a container that shares the others."""
    return (await two(node))[0]
