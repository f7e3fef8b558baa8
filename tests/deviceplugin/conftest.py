"""A node with a kubelet and a device plugin, in both ways to become known."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from criproxy.deviceplugin import health_commands
from criproxy.observe import children
from tests.deviceplugin.kubelet import PATIENT_S
from tests.deviceplugin.node import Node


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """One that has neither yet. Its folder's path is short, for sockets."""
    with TemporaryDirectory(prefix="k") as folder:
        node = Node(Path(folder))
        yield node
        await node.stop()


@pytest.fixture(autouse=True)
def _patient_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of killed programs, however slow the machine is: none of these tests has one that stays."""
    for module in (children, health_commands):
        monkeypatch.setattr(module, "KILL_S", PATIENT_S)
