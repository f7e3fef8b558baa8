"""What tests of the controller have in common."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.world import Slow, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, of which CPU 0 is reserved, under the static policy."""
    async with World(tmp_path) as made:
        yield made


@pytest.fixture
async def slow() -> Slow:
    """The runtime's latencies."""
    return Slow()
