"""A node with a kubelet and a device plugin, in both ways to become known."""

import asyncio
from collections.abc import AsyncIterator, Callable
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


@pytest.fixture
async def skip_s(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets so many seconds pass at once, for all timers of the event loop that run."""
    loop, skipped_s = asyncio.get_running_loop(), [0.0]
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + sum(skipped_s))
    return skipped_s.append
