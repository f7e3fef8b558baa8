"""What tests of the controller have in common."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.disks import small_disk
from tests.node.world import Slow, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, of which CPU 0 is reserved, under the static policy."""
    async with World(tmp_path) as made:
        yield made


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the state directory, on a small disk of its own."""
    with small_disk(tmp_path / "state") as state:
        yield state


@pytest.fixture
async def slow() -> Slow:
    """The runtime's latencies."""
    return Slow()
