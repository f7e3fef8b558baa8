"""A node with a kubelet and a device plugin, in both ways to become known."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.deviceplugin.fake_nvml import fake_nvml, nvml_library
from tests.deviceplugin.node import Node
from tests.deviceplugin.program import Program
from tests.patience import patient_kills

__all__ = ["fake_nvml", "nvml_library", "patient_kills"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="d") as name:
        yield Path(name)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """One that has neither yet. Its folder's path is short, for sockets."""
    with TemporaryDirectory(prefix="k") as folder:
        node = Node(Path(folder))
        yield node
        await node.stop()


@pytest.fixture
async def program(folder: Path) -> AsyncIterator[Program]:
    """One without options, on a machine without NVIDIA's cards, that is not started yet."""
    async with Program(folder) as found:
        yield found
