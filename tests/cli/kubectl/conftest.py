"""A cluster with one node, and its daemon."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.asking import daemon
from tests.cli.kubectl.kube import Kube, cluster
from tests.node.world import World, owner, sharer


@pytest.fixture
async def kube(tmp_path: Path) -> AsyncIterator[Kube]:
    """A cluster with one node."""
    async with cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """The daemon of that node, with two containers."""
    async with daemon(tmp_path) as made:
        await made.run(owner("web", 2))
        await made.run(sharer("cache"))
        yield made
