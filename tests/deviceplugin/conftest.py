"""A node with a kubelet and a device plugin, in both ways to become known."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.deviceplugin.fake_nvml import FakeNvml, compile_library
from tests.deviceplugin.node import Node
from tests.patience import patient_kills

__all__ = ["patient_kills"]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """One that has neither yet. Its folder's path is short, for sockets."""
    with TemporaryDirectory(prefix="k") as folder:
        node = Node(Path(folder))
        yield node
        await node.stop()


@pytest.fixture(scope="session")
def _library(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(shared_dir / "tools/fake-nvml", tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(shared_dir: Path, _library: Path, tmp_path: Path) -> Callable[[str], FakeNvml]:
    """Return what makes a library that says of the cards what a file of ../shared/tools/fake-nvml says."""
    return lambda name: FakeNvml(
        _library, tmp_path / "cards.txt", (shared_dir / "tools/fake-nvml" / f"{name}.txt").read_text()
    )
